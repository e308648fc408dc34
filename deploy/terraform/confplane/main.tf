# One object of the API for each entity and facet: created by POST, which never replaces what is there, then read,
# replaced and removed by its entity id. `data` has its members in the order of the API's answers: the provider compares
# an imported object with it byte by byte. A read of what somebody else removed is answered with no keys: the provider
# fails on a 404.

locals {
  api = "/v1/clusters/${var.cluster}"
}

resource "restapi_object" "client_quotas" {
  for_each = var.client_quotas

  path      = "${local.api}/client-quotas"
  read_path = "${local.api}/client-quotas/{id}?absent=empty"
  object_id = each.key
  data      = jsonencode({ id = each.key, quotas = each.value })

  lifecycle {
    ignore_changes = [debug] # the provider's import sets it
  }
}

resource "restapi_object" "client_configs" {
  for_each = var.client_configs

  path      = "${local.api}/client-configs"
  read_path = "${local.api}/client-configs/{id}?absent=empty"
  object_id = each.key
  data      = "{\"id\":${jsonencode(each.key)},\"configs\":${jsonencode(each.value)}}"

  lifecycle {
    ignore_changes = [debug]
  }
}

resource "restapi_object" "configs" {
  for_each = var.configs

  path      = "${local.api}/configs"
  read_path = "${local.api}/configs/{id}?absent=empty"
  object_id = each.key
  data      = "{\"id\":${jsonencode(each.key)},\"configs\":${jsonencode(each.value)}}"

  # Kafka 4 sets this key in the default of all brokers by itself, and refuses its removal.
  ignore_changes_to = (
    each.key == "broker" && !contains(keys(each.value), "min.insync.replicas")
    ? ["configs.min.insync.replicas"] : null
  )

  lifecycle {
    ignore_changes = [debug]
  }
}
