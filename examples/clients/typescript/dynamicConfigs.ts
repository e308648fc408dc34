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
  /** The name under which this running client reports: 1 to 128 letters, digits and `._-`. */
  instance: string;
  /** Returns the keys that the application does not take over, each with the reason; without it, none. */
  refused?: (values: ReadonlyMap<string, string>) => Schemas["RefusedConfig"][];
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
/** A longer timer ends at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;
const FRESH_REPORT_S = 240;

/**
 * Yields the dynamic values of each answer that may have changed, by Java's names; a first answer comes at once. Ends
 * where the service does not have the feature. An application that asks for the next values runs with the last ones:
 * then they are reported as applied.
 */
export async function* follow(
  client: Followed,
  failed: (error: unknown) => void = console.warn,
): AsyncGenerator<Map<string, string>> {
  let registeredAt: number | undefined;
  let etag: string | undefined;
  let values = new Map<string, string>();
  const report = reporter(client, failed);
  for (let failures = 0; ; ) {
    let retryAfterS = 0;
    try {
      const registers = registeredAt === undefined || performance.now() - registeredAt >= DAY_MS;
      const answer = registers ? await register(client) : await poll(client, etag);
      if (registers) registeredAt = performance.now();
      failures = 0;
      if (answer.values !== undefined) {
        [values, etag] = [answer.values, answer.etag];
        yield values;
      }
      await report(answer.revision, values);
    } catch (error) {
      failed(error);
      if (error instanceof Refused) {
        if (lacking(error.status, error.code)) return;
        retryAfterS = error.retryAfterS;
      }
      failures += 1;
    }
    const wait = pauseMs(client.maxAgeMs, failures, retryAfterS, Math.random());
    await new Promise((resolve) => setTimeout(resolve, Math.min(wait, LONGEST_TIMER_MS)));
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

/** Says whether an answered poll is to be followed by a report; `sinceS` is undefined where none was taken yet. */
export function due(changed: boolean, sinceS: number | undefined): boolean {
  return changed || sinceS === undefined || sinceS >= FRESH_REPORT_S;
}

/** Returns the function that reports the values that a client runs with, if a report is due. It never fails. */
function reporter(
  client: Followed,
  failed: (error: unknown) => void,
): (revision: string, values: ReadonlyMap<string, string>) => Promise<void> {
  let [sent, sentAt, off]: [string, number | undefined, boolean] = ["", undefined, false];
  return async (revision, values) => {
    const refused = client.refused?.(values) ?? [];
    const applied = JSON.stringify([...values, refused]);
    const sinceS = sentAt === undefined ? undefined : (performance.now() - sentAt) / 1000;
    if (off || !due(applied !== sent, sinceS)) return;
    const body: Schemas["AppliedConfigs"] = { ...client.software, appliedRevision: revision, refused };
    sentAt = undefined;
    try {
      await send(client, `${entity(client)}/instances/${client.instance}`, {
        method: "PUT",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(body),
      });
      [sent, sentAt] = [applied, performance.now()];
    } catch (error) {
      failed(error);
      off = error instanceof Refused && lacking(error.status, error.code);
    }
  };
}

/** An answered poll; without `values` where they are those of the answer before. */
interface Answered {
  revision: string;
  values?: Map<string, string>;
  etag?: string | undefined;
}

async function register(client: Followed): Promise<Answered> {
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
  return { revision: revisionOf(answer), values: byKey(described.entries[0]?.values ?? []) };
}

async function poll(client: Followed, etag: string | undefined): Promise<Answered> {
  const headers: Record<string, string> = etag === undefined ? {} : { "If-None-Match": etag };
  const answer = await send(client, `${entity(client)}/effective`, { headers });
  const revision = revisionOf(answer);
  if (answer.status === 304) return { revision };
  const effective: Effective = await answer.json();
  return { revision, values: byKey(effective.configs), etag: answer.headers.get("ETag") ?? undefined };
}

function revisionOf(answer: Response): string {
  return answer.headers.get("Confplane-Revision") ?? "0";
}

function entity(client: Followed): string {
  const id = client.clientId === undefined ? "" : `,client-id=${spelled(client.clientId)}`;
  return `client-configs/user=${spelled(client.user)}${id}`;
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
