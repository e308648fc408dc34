# The patterns of entity ids are those of the API; a test compares them.

variable "cluster" {
  description = "The cluster, by its name in Confplane."
  type        = string

  validation {
    condition     = can(regex("^[A-Za-z0-9._-]+$", var.cluster))
    error_message = "A cluster's name has letters, digits, '.', '_' and '-'."
  }
}

variable "client_quotas" {
  description = "Quotas by entity id: user=alice, client-id=billing, ip=10.0.0.1; a type alone is the default entity."
  type        = map(map(number))
  default     = {}

  validation {
    condition     = alltrue([for id, values in var.client_quotas : can(regex("^(user(=(\\.{0,2}([A-Za-z0-9_-]|~(0[1-9A-F]|1[0-9A-F]|2[0-9A-CF]|3[A-F]|40|5[B-E]|60|7[B-F])|~(C[2-9A-F]|D[0-9A-F])~[89AB][0-9A-F]|(~E0~[AB][0-9A-F]|~E[1-9A-CEF]~[89AB][0-9A-F]|~ED~[89][0-9A-F])~[89AB][0-9A-F]|(~F0~[9AB][0-9A-F]|~F[1-3]~[89AB][0-9A-F]|~F4~8[0-9A-F])(~[89AB][0-9A-F]){2})|\\.{3})([A-Za-z0-9._-]|~(0[1-9A-F]|1[0-9A-F]|2[0-9A-CF]|3[A-F]|40|5[B-E]|60|7[B-F])|~(C[2-9A-F]|D[0-9A-F])~[89AB][0-9A-F]|(~E0~[AB][0-9A-F]|~E[1-9A-CEF]~[89AB][0-9A-F]|~ED~[89][0-9A-F])~[89AB][0-9A-F]|(~F0~[9AB][0-9A-F]|~F[1-3]~[89AB][0-9A-F]|~F4~8[0-9A-F])(~[89AB][0-9A-F]){2})*)?(,client-id(=(\\.{0,2}([A-Za-z0-9_-]|~(0[1-9A-F]|1[0-9A-F]|2[0-9A-CF]|3[A-F]|40|5[B-E]|60|7[B-F])|~(C[2-9A-F]|D[0-9A-F])~[89AB][0-9A-F]|(~E0~[AB][0-9A-F]|~E[1-9A-CEF]~[89AB][0-9A-F]|~ED~[89][0-9A-F])~[89AB][0-9A-F]|(~F0~[9AB][0-9A-F]|~F[1-3]~[89AB][0-9A-F]|~F4~8[0-9A-F])(~[89AB][0-9A-F]){2})|\\.{3})([A-Za-z0-9._-]|~(0[1-9A-F]|1[0-9A-F]|2[0-9A-CF]|3[A-F]|40|5[B-E]|60|7[B-F])|~(C[2-9A-F]|D[0-9A-F])~[89AB][0-9A-F]|(~E0~[AB][0-9A-F]|~E[1-9A-CEF]~[89AB][0-9A-F]|~ED~[89][0-9A-F])~[89AB][0-9A-F]|(~F0~[9AB][0-9A-F]|~F[1-3]~[89AB][0-9A-F]|~F4~8[0-9A-F])(~[89AB][0-9A-F]){2})*)?)?|client-id(=(\\.{0,2}([A-Za-z0-9_-]|~(0[1-9A-F]|1[0-9A-F]|2[0-9A-CF]|3[A-F]|40|5[B-E]|60|7[B-F])|~(C[2-9A-F]|D[0-9A-F])~[89AB][0-9A-F]|(~E0~[AB][0-9A-F]|~E[1-9A-CEF]~[89AB][0-9A-F]|~ED~[89][0-9A-F])~[89AB][0-9A-F]|(~F0~[9AB][0-9A-F]|~F[1-3]~[89AB][0-9A-F]|~F4~8[0-9A-F])(~[89AB][0-9A-F]){2})|\\.{3})([A-Za-z0-9._-]|~(0[1-9A-F]|1[0-9A-F]|2[0-9A-CF]|3[A-F]|40|5[B-E]|60|7[B-F])|~(C[2-9A-F]|D[0-9A-F])~[89AB][0-9A-F]|(~E0~[AB][0-9A-F]|~E[1-9A-CEF]~[89AB][0-9A-F]|~ED~[89][0-9A-F])~[89AB][0-9A-F]|(~F0~[9AB][0-9A-F]|~F[1-3]~[89AB][0-9A-F]|~F4~8[0-9A-F])(~[89AB][0-9A-F]){2})*)?|ip(=(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])(\\.(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])){3})?)$", id)) && length(values) > 0])
    error_message = "Each key must be the entity id of a user, client-id or IPv4 address, such as user=alice,client-id=billing, and have one quota at least. Write bytes of names other than A-Z a-z 0-9 . _ - as ~HH."
  }
}

variable "client_configs" {
  description = "Client configs (KIP-649) by entity id: user=alice, or user=alice,client-id=billing."
  type        = map(map(string))
  default     = {}

  validation {
    condition     = alltrue([for id, values in var.client_configs : can(regex("^user(=(\\.{0,2}([A-Za-z0-9_-]|~(0[1-9A-F]|1[0-9A-F]|2[0-9A-CF]|3[A-F]|40|5[B-E]|60|7[B-F])|~(C[2-9A-F]|D[0-9A-F])~[89AB][0-9A-F]|(~E0~[AB][0-9A-F]|~E[1-9A-CEF]~[89AB][0-9A-F]|~ED~[89][0-9A-F])~[89AB][0-9A-F]|(~F0~[9AB][0-9A-F]|~F[1-3]~[89AB][0-9A-F]|~F4~8[0-9A-F])(~[89AB][0-9A-F]){2})|\\.{3})([A-Za-z0-9._-]|~(0[1-9A-F]|1[0-9A-F]|2[0-9A-CF]|3[A-F]|40|5[B-E]|60|7[B-F])|~(C[2-9A-F]|D[0-9A-F])~[89AB][0-9A-F]|(~E0~[AB][0-9A-F]|~E[1-9A-CEF]~[89AB][0-9A-F]|~ED~[89][0-9A-F])~[89AB][0-9A-F]|(~F0~[9AB][0-9A-F]|~F[1-3]~[89AB][0-9A-F]|~F4~8[0-9A-F])(~[89AB][0-9A-F]){2})*)?(,client-id(=(\\.{0,2}([A-Za-z0-9_-]|~(0[1-9A-F]|1[0-9A-F]|2[0-9A-CF]|3[A-F]|40|5[B-E]|60|7[B-F])|~(C[2-9A-F]|D[0-9A-F])~[89AB][0-9A-F]|(~E0~[AB][0-9A-F]|~E[1-9A-CEF]~[89AB][0-9A-F]|~ED~[89][0-9A-F])~[89AB][0-9A-F]|(~F0~[9AB][0-9A-F]|~F[1-3]~[89AB][0-9A-F]|~F4~8[0-9A-F])(~[89AB][0-9A-F]){2})|\\.{3})([A-Za-z0-9._-]|~(0[1-9A-F]|1[0-9A-F]|2[0-9A-CF]|3[A-F]|40|5[B-E]|60|7[B-F])|~(C[2-9A-F]|D[0-9A-F])~[89AB][0-9A-F]|(~E0~[AB][0-9A-F]|~E[1-9A-CEF]~[89AB][0-9A-F]|~ED~[89][0-9A-F])~[89AB][0-9A-F]|(~F0~[9AB][0-9A-F]|~F[1-3]~[89AB][0-9A-F]|~F4~8[0-9A-F])(~[89AB][0-9A-F]){2})*)?)?$", id)) && length(values) > 0])
    error_message = "Each key must be the entity id of a user, such as user=alice or user=alice,client-id=billing, and have one config at least. Write bytes of names other than A-Z a-z 0-9 . _ - as ~HH."
  }
}

variable "configs" {
  description = "Configs by entity id: topic=orders, broker=0, broker (the default of all), group=billing, client-metrics=producers. A secret is null: it stays as it is."
  type        = map(map(string))
  default     = {}

  validation {
    condition     = alltrue([for id, values in var.configs : can(regex("^(topic=([A-Za-z0-9_-][A-Za-z0-9._-]{0,248}|\\.[A-Za-z0-9_-][A-Za-z0-9._-]{0,247}|\\.\\.[A-Za-z0-9._-]{1,247})|broker(=(0|[1-9][0-9]{0,9}))?|(group|client-metrics)=(\\.{0,2}([A-Za-z0-9_-]|~(0[1-9A-F]|1[0-9A-F]|2[0-9A-CF]|3[A-F]|40|5[B-E]|60|7[B-F])|~(C[2-9A-F]|D[0-9A-F])~[89AB][0-9A-F]|(~E0~[AB][0-9A-F]|~E[1-9A-CEF]~[89AB][0-9A-F]|~ED~[89][0-9A-F])~[89AB][0-9A-F]|(~F0~[9AB][0-9A-F]|~F[1-3]~[89AB][0-9A-F]|~F4~8[0-9A-F])(~[89AB][0-9A-F]){2})|\\.{3})([A-Za-z0-9._-]|~(0[1-9A-F]|1[0-9A-F]|2[0-9A-CF]|3[A-F]|40|5[B-E]|60|7[B-F])|~(C[2-9A-F]|D[0-9A-F])~[89AB][0-9A-F]|(~E0~[AB][0-9A-F]|~E[1-9A-CEF]~[89AB][0-9A-F]|~ED~[89][0-9A-F])~[89AB][0-9A-F]|(~F0~[9AB][0-9A-F]|~F[1-3]~[89AB][0-9A-F]|~F4~8[0-9A-F])(~[89AB][0-9A-F]){2})*)$", id)) && length(values) > 0])
    error_message = "Each key must be the entity id of a topic, broker, group or subscription to client metrics, such as topic=orders or group=billing, and have one config at least. Write bytes of names other than A-Z a-z 0-9 . _ - as ~HH."
  }
}
