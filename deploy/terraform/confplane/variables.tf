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
    condition     = alltrue([for id, values in var.client_quotas : can(regex("^(user|client-id|ip)(=|,|$)", id)) && length(values) > 0])
    error_message = "Quotas are of users, client-ids and ips, and each entity has one at least."
  }
}

variable "client_configs" {
  description = "Client configs (KIP-649) by entity id: user=alice, or user=alice,client-id=billing."
  type        = map(map(string))
  default     = {}

  validation {
    condition     = alltrue([for id, values in var.client_configs : can(regex("^user(=|,|$)", id)) && length(values) > 0])
    error_message = "Client configs are of users, and each entity has one at least."
  }
}

variable "configs" {
  description = "Configs of topics and brokers by entity id: topic=orders, broker=0, broker (the default of all). A secret is null: it stays as it is."
  type        = map(map(string))
  default     = {}

  validation {
    condition     = alltrue([for id, values in var.configs : can(regex("^(topic=|broker(=|$))", id)) && length(values) > 0])
    error_message = "Configs are of topics and brokers, and each entity has one at least."
  }
}
