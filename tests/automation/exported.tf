# Configs of the cluster default, for Terraform and OpenTofu from 1.7 on. A secret is null, and stays as it is.
# The module is deploy/terraform/confplane of Confplane. The token is in the variable REST_API_BEARER.

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

provider "restapi" {
  uri                  = var.url
  write_returns_object = true
}

module "confplane" {
  source         = "../confplane"
  cluster        = "default"
  client_quotas  = local.client_quotas
  client_configs = local.client_configs
  configs        = local.configs
}

import {
  for_each = local.client_quotas
  to       = module.confplane.restapi_object.client_quotas[each.key]
  id       = "/v1/clusters/default/client-quotas/${each.key}"
}

locals {
  client_quotas = {
    "client-id" = { "request_percentage" = 200 }
    "client-id=-x" = { "consumer_byte_rate" = 2 }
    "client-id=1e3" = { "consumer_byte_rate" = 2 }
    "client-id=CN~3DAlice~2C~20O~3DAcme~2Fx~20y~2A~C3~A9" = { "consumer_byte_rate" = 2 }
    "client-id=it~27s~20~22~24HOME~22~20~60id~60~20~24~7Bx~7D~20~25~7By~7D~20~24~24~7Bz~7D~20~5Cn" = { "consumer_byte_rate" = 2 }
    "client-id=null" = { "consumer_byte_rate" = 2 }
    "client-id=two~0A-~20id~3A~20user~3Dlines~0A~09END" = { "consumer_byte_rate" = 2 }
    "client-id=~20" = { "consumer_byte_rate" = 2 }
    "client-id=~3Cdefault~3E" = { "consumer_byte_rate" = 2 }
    "client-id=~7E~2B~252F~25" = { "consumer_byte_rate" = 2 }
    "client-id=~F0~9F~94~91~20~E5~AF~86~E9~92~A5" = { "consumer_byte_rate" = 2 }
    "ip" = { "connection_creation_rate" = 10 }
    "ip=10.0.0.1" = { "connection_creation_rate" = 2147483647 }
    "user" = { "producer_byte_rate" = 1024 }
    "user,client-id" = { "consumer_byte_rate" = 7 }
    "user=-x" = { "producer_byte_rate" = 1 }
    "user=-x,client-id=x-" = { "request_percentage" = 3 }
    "user=1e3" = { "producer_byte_rate" = 1 }
    "user=1e3,client-id=3e1" = { "request_percentage" = 3 }
    "user=CN~3DAlice~2C~20O~3DAcme~2Fx~20y~2A~C3~A9" = { "producer_byte_rate" = 1 }
    "user=CN~3DAlice~2C~20O~3DAcme~2Fx~20y~2A~C3~A9,client-id=~C3~A9~2Ay~20x~2FemcA~3DO~20~2CecilA~3DNC" = { "request_percentage" = 3 }
    "user=alice" = { "controller_mutation_rate" = 0.0001, "producer_byte_rate" = 9007199254740992, "request_percentage" = 50.5 }
    "user=alice,client-id" = { "consumer_byte_rate" = 0 }
    "user=it~27s~20~22~24HOME~22~20~60id~60~20~24~7Bx~7D~20~25~7By~7D~20~24~24~7Bz~7D~20~5Cn" = { "producer_byte_rate" = 1 }
    "user=it~27s~20~22~24HOME~22~20~60id~60~20~24~7Bx~7D~20~25~7By~7D~20~24~24~7Bz~7D~20~5Cn,client-id=n~5C~20~7Dz~7B~24~24~20~7Dy~7B~25~20~7Dx~7B~24~20~60di~60~20~22EMOH~24~22~20s~27ti" = { "request_percentage" = 3 }
    "user=null" = { "producer_byte_rate" = 1 }
    "user=null,client-id=llun" = { "request_percentage" = 3 }
    "user=two~0A-~20id~3A~20user~3Dlines~0A~09END" = { "producer_byte_rate" = 1 }
    "user=two~0A-~20id~3A~20user~3Dlines~0A~09END,client-id=DNE~09~0Asenil~3Dresu~20~3Adi~20-~0Aowt" = { "request_percentage" = 3 }
    "user=~20" = { "producer_byte_rate" = 1 }
    "user=~20,client-id=~20" = { "request_percentage" = 3 }
    "user=~3Cdefault~3E" = { "producer_byte_rate" = 1 }
    "user=~3Cdefault~3E,client-id=~3Etluafed~3C" = { "request_percentage" = 3 }
    "user=~7E~2B~252F~25" = { "producer_byte_rate" = 1 }
    "user=~7E~2B~252F~25,client-id=~25F2~25~2B~7E" = { "request_percentage" = 3 }
    "user=~F0~9F~94~91~20~E5~AF~86~E9~92~A5" = { "producer_byte_rate" = 1 }
    "user=~F0~9F~94~91~20~E5~AF~86~E9~92~A5,client-id=~E9~92~A5~E5~AF~86~20~F0~9F~94~91" = { "request_percentage" = 3 }
  }
}

import {
  for_each = local.client_configs
  to       = module.confplane.restapi_object.client_configs[each.key]
  id       = "/v1/clusters/default/client-configs/${each.key}"
}

locals {
  client_configs = {
    "user" = { "session.timeout.ms" = "20000" }
    "user=alice" = { "acks" = "all" }
  }
}

import {
  for_each = local.configs
  to       = module.confplane.restapi_object.configs[each.key]
  id       = "/v1/clusters/default/configs/${each.key}"
}

locals {
  configs = {
    "broker" = { "log.cleanup.policy" = "delete", "log.retention.ms" = "604800000" }
    "broker=3" = { "background.threads" = "12", "listener.name.internal.ssl.endpoint.identification.algorithm" = "", "listener.name.internal.ssl.keystore.password" = null }
    "broker=4" = { "listener.name.internal.ssl.keystore.location" = "/etc/é = $${x}%%{y}$$${z}/it's\n\"two\" \\ lines.jks", "listener.name.internal.ssl.principal.mapping.rules" = "RULE:^CN=(.*?), OU=[a-z]+$/$1/L,DEFAULT" }
    "topic=a.b_c-d" = { "leader.replication.throttled.replicas" = "*" }
    "topic=orders" = { "cleanup.policy" = "compact,delete", "retention.ms" = "86400000" }
  }
}
