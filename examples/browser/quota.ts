/**
 * A page of another origin changes a quota of a user, only if nobody changed it since the page read it.
 *
 * The service has to name the page's origin: `http.cors_origins: [https://portal.example.com]`.
 */

export type Quotas = Record<string, number>;

/** The answer to a change: done, or refused because somebody else was faster. */
export type Changed = { done: true; etag: string; revision: string | null } | { done: false; etag: string | null };

/** Spells a name as ids in URLs have it: `user=CN~3Da~20b`. */
export function spelled(name: string): string {
  return encodeURIComponent(name)
    .replace(/[!'()*~]/g, (c) => "%" + c.charCodeAt(0).toString(16).toUpperCase())
    .replace(/%/g, "~");
}

/** Reads the quotas that a user declares, and their ETag; undefined where the user declares none. */
export async function readQuotas(
  cluster: string,
  token: string,
  user: string,
): Promise<{ quotas: Quotas; etag: string } | undefined> {
  const answer = await fetch(`${cluster}/client-quotas/user=${spelled(user)}`, {
    headers: { Authorization: `Bearer ${token}` },
  });
  if (answer.status === 404) return undefined;
  if (!answer.ok) throw new Error((await answer.json()).detail);
  return { quotas: (await answer.json()).quotas, etag: answer.headers.get("ETag")! };
}

/** Replaces a user's quotas if they still have an ETag; without an ETag, if the user declares none. */
export async function changeQuotas(
  cluster: string,
  token: string,
  user: string,
  quotas: Quotas,
  etag?: string,
): Promise<Changed> {
  const condition: Record<string, string> = etag === undefined ? { "If-None-Match": "*" } : { "If-Match": etag };
  const answer = await fetch(`${cluster}/client-quotas/user=${spelled(user)}`, {
    method: "PUT",
    headers: {
      Authorization: `Bearer ${token}`,
      "Content-Type": "application/json",
      "Idempotency-Key": crypto.randomUUID(),
      "Confplane-Reason": "changed in the portal",
      ...condition,
    },
    body: JSON.stringify({ quotas }),
  });
  if (answer.ok) {
    return {
      done: true,
      etag: answer.headers.get("ETag")!,
      revision: answer.headers.get("Confplane-Revision"),
    };
  }
  const problem = await answer.json();
  if (answer.status === 412) return { done: false, etag: problem.etag };
  throw new Error(`${problem.title}: ${problem.detail}`);
}
