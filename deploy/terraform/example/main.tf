# The configs of one cluster. The provider reads the token from the variable REST_API_BEARER of the environment.

terraform {
  required_providers {
    restapi = {
      source  = "Mastercard/restapi"
      version = ">= 3.0.0"
    }
  }
}

variable "url" {
  description = "The URL of Confplane, without /v1."
  type        = string
}

variable "cluster" {
  description = "The cluster, by its name in Confplane."
  type        = string
  default     = "default"
}

provider "restapi" {
  uri                  = var.url
  write_returns_object = true
}

locals {
  # A user whose name has other characters than A-Z a-z 0-9 . _ -
  principal = "CN=billing,O=Example Inc"
  escaped   = replace(replace(replace(urlencode(local.principal), "+", "%20"), "~", "%7E"), "%", "~")
}

module "confplane" {
  source  = "../confplane"
  cluster = var.cluster

  client_quotas = {
    "user"                     = { producer_byte_rate = 1048576 } # every user without quotas of their own
    "user=alice"               = { producer_byte_rate = 10485760, request_percentage = 50.5 }
    "user=${local.escaped}"    = { consumer_byte_rate = 20971520 }
    "client-id=reports"        = { consumer_byte_rate = 1048576 }
    "ip=10.0.0.1"              = { connection_creation_rate = 20 }
    "user=alice,client-id=app" = { producer_byte_rate = 2097152 }
  }

  client_configs = {
    "user=alice" = { "acks" = "all", "session.timeout.ms" = "20000" }
  }

  configs = {
    "topic=orders" = { "retention.ms" = "86400000", "cleanup.policy" = "compact,delete" }
    "broker"       = { "log.retention.ms" = "604800000" }
  }
}
