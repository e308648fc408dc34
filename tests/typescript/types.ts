// Bodies that the generated types take, and bodies that they refuse, as the service does.
import type { components } from "./confplane.js";

type Schemas = components["schemas"];

export const ops: Schemas["QuotaOp"][] = [
  { key: "producer_byte_rate", value: 1024 },
  { key: "producer_byte_rate", remove: true },
  // @ts-expect-error - neither a value nor a removal
  { key: "producer_byte_rate" },
  // @ts-expect-error - no key
  { value: 1024 },
  // @ts-expect-error - an unknown member
  { key: "producer_byte_rate", value: 1024, values: 1024 },
];

export const created: Schemas["NewClientQuotas"][] = [
  { id: "user=alice", quotas: { producer_byte_rate: 1024 } },
  { entity: { user: "alice", "client-id": null }, quotas: { producer_byte_rate: 1024 } },
  // @ts-expect-error - names no entity
  { quotas: { producer_byte_rate: 1024 } },
  // @ts-expect-error - sets nothing
  { id: "user=alice" },
];

export const reverted: Schemas["RevertChanges"][] = [
  { requestId: "r-1" },
  { principal: "User:alice", since: "2026-01-31T12:00:00Z", validateOnly: true },
  // @ts-expect-error - of two selectors
  { requestId: "r-1", changeId: "019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10" },
];

export const described: Schemas["DescribeClientConfigs"] = {
  components: [{ entityType: "user", matchType: "default" }],
};
