/**
 * Follows the dynamic configs of one Kafka client by the contract of docs/clients.md, with types generated from the
 * specification of Confplane:
 *
 *     npx openapi-typescript openapi/openapi.yaml --default-non-nullable=false --output confplane.d.ts
 */
import type { components, operations } from "./confplane.js";

type Schemas = components["schemas"];
type Json<Part> = Part extends { content: { "application/json": infer Body } } ? Body : never;
type Described = Json<operations["describeClientConfigs"]["responses"][200]>;
type Effective = Json<operations["effectiveClientConfigs"]["responses"][200]>;

/** The client, the service that it asks, and the function that gives the token as it is now. */
export interface Followed {
  url: string;
  cluster: string;
  token: () => string;
  user: string;
  clientId?: string;
  supportedConfigs: string[];
  software: Schemas["ClientInformation"];
  /** Milliseconds between polls: `metadata.max.age.ms`. */
  maxAgeMs: number;
}

/** A refusal by the service, or by a server in front of it. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly code: number | null,
    readonly retryAfterS: number,
    detail: string,
  ) {
    super(`${status}: ${detail}`);
  }
}

const DAY_MS = 86_400_000;
const LONGEST_RETRY_AFTER_MS = 3_600_000;
const REQUEST_MS = 30_000;

/**
 * Yields the dynamic values of each answer that may have changed, by Java's names; a first answer comes at once. Ends
 * where the service does not have the feature.
 */
export async function* follow(
  client: Followed,
  failed: (error: unknown) => void = console.warn,
): AsyncGenerator<Map<string, string>> {
  let registeredAt: number | undefined;
  let etag: string | undefined;
  for (let failures = 0; ; ) {
    let retryAfterS = 0;
    try {
      if (registeredAt === undefined || performance.now() - registeredAt >= DAY_MS) {
        const values = await register(client);
        [registeredAt, etag] = [performance.now(), undefined];
        yield values;
      } else {
        const answer = await poll(client, etag);
        if (answer !== undefined) {
          etag = answer.etag;
          yield answer.values;
        }
      }
      failures = 0;
    } catch (error) {
      failed(error);
      if (error instanceof Refused) {
        if (lacking(error.status, error.code)) return;
        retryAfterS = error.retryAfterS;
      }
      failures += 1;
    }
    const wait = pauseMs(client.maxAgeMs, failures, retryAfterS, Math.random());
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

/** Says whether an error means that the service does not have the feature. */
export function lacking(status: number, code: number | null): boolean {
  return [404, 405, 501].includes(status) || code === 35 || code === 42;
}

/** Returns the milliseconds before the next poll; `share` is a random number from 0 to 1. */
export function pauseMs(maxAgeMs: number, failures: number, retryAfterS: number, share: number): number {
  if (failures === 0) return maxAgeMs * (0.8 + 0.4 * share);
  const backoff = Math.min(maxAgeMs, 1000 * 2 ** (failures - 1)) * (0.5 + 0.5 * share);
  return Math.max(backoff, Math.min(retryAfterS * 1000, LONGEST_RETRY_AFTER_MS) * (1 + 0.2 * share));
}

async function register(client: Followed): Promise<Map<string, string>> {
  const names = [["user", client.user] as const, ["client-id", client.clientId] as const];
  const body: Schemas["DescribeClientConfigs"] = {
    components: names.flatMap(([entityType, match]) =>
      match === undefined ? [] : [{ entityType, matchType: "exact", match }],
    ),
    resolveEntity: true,
    supportedConfigs: client.supportedConfigs,
    clientInformation: client.software,
  };
  const answer = await send(client, "client-configs:describe", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  const described: Described = await answer.json();
  return byKey(described.entries[0]?.values ?? []);
}

async function poll(
  client: Followed,
  etag: string | undefined,
): Promise<{ values: Map<string, string>; etag: string | undefined } | undefined> {
  const id = `user=${spelled(client.user)}` + (client.clientId === undefined ? "" : `,client-id=${spelled(client.clientId)}`);
  const headers: Record<string, string> = etag === undefined ? {} : { "If-None-Match": etag };
  const answer = await send(client, `client-configs/${id}/effective`, { headers });
  if (answer.status === 304) return undefined;
  const effective: Effective = await answer.json();
  return { values: byKey(effective.configs), etag: answer.headers.get("ETag") ?? undefined };
}

async function send(
  client: Followed,
  path: string,
  request: { method?: string; headers: Record<string, string>; body?: string },
): Promise<Response> {
  const answer = await fetch(`${client.url}/v1/clusters/${client.cluster}/${path}`, {
    ...request,
    headers: { ...request.headers, Authorization: `Bearer ${client.token()}` },
    signal: AbortSignal.timeout(REQUEST_MS),
  });
  if (answer.ok || answer.status === 304) return answer;
  const problem: Partial<Schemas["Problem"]> = await answer.json().catch(() => ({}));
  const retryAfter = Number(answer.headers.get("Retry-After") ?? 0);
  throw new Refused(
    answer.status,
    problem.kafkaErrorCode ?? null,
    Number.isFinite(retryAfter) ? retryAfter : 0,
    problem.detail ?? answer.statusText,
  );
}

function byKey(pairs: Pick<Schemas["ConfigValue"], "key" | "value">[]): Map<string, string> {
  return new Map(pairs.map(({ key, value }) => [key, value]));
}

/** Spells a name as ids in URLs have it: `user=CN~3Da~20b`. */
function spelled(name: string): string {
  return encodeURIComponent(name)
    .replace(/[!'()*~]/g, (c) => "%" + c.charCodeAt(0).toString(16).toUpperCase())
    .replace(/%/g, "~");
}
