{{/* Contradictions that the schema cannot express, each with a message. Included once, by the Deployment. */}}
{{- define "confplane.guards" -}}
{{- if not .Values.image.repository }}
{{- fail "\n\nimage.repository is not set: there is no default image. Build one as the chart's README says and give its repository, e.g. --set image.repository=images.example.com/confplane" }}
{{- end }}
{{- if not .Values.settings.clusters }}
{{- fail "\n\nsettings.clusters is empty: name at least one Kafka cluster and its ZooKeeper, e.g. --set settings.clusters.payments.zookeeper=zk-0.zk:2181/kafka" }}
{{- end }}
{{- include "confplane.guards.secrets" . }}
{{- range $cluster, $settings := .Values.settings.clusters }}
{{- $low := int64 (dig "group_min_session_timeout_ms" 6000 $settings) }}
{{- $high := int64 (dig "group_max_session_timeout_ms" 1800000 $settings) }}
{{- if gt $low $high }}
{{- fail (printf "\n\nsettings.clusters.%s: group_min_session_timeout_ms (%d) is above group_max_session_timeout_ms (%d); set them as the brokers' group.min and group.max.session.timeout.ms" $cluster $low $high) }}
{{- end }}
{{- end }}
{{- range .Values.extraEnv }}
{{- if hasPrefix "CONFPLANE_" .name }}
{{- fail (printf "\n\nextraEnv must not set %s: settings go below `settings`, DSNs and the token into the Secrets named below `secrets`" .name) }}
{{- end }}
{{- end }}
{{- $deadline := add .Values.preStopSeconds (div (add .Values.settings.http.drain_ms .Values.settings.http.request_deadline_ms 999) 1000) }}
{{- if lt (int64 .Values.terminationGracePeriodSeconds) $deadline }}
{{- fail (printf "\n\nterminationGracePeriodSeconds (%d) would cut off requests: set it to at least preStopSeconds plus settings.http.drain_ms and settings.http.request_deadline_ms, here %d" (int64 .Values.terminationGracePeriodSeconds) $deadline) }}
{{- end }}
{{- if and (has (toString .Values.updateStrategy.maxUnavailable) (list "0" "0%")) (has (toString .Values.updateStrategy.maxSurge) (list "0" "0%")) }}
{{- fail "\n\nupdateStrategy.maxUnavailable and updateStrategy.maxSurge are both 0, so that no update could ever proceed: set one of them to at least 1" }}
{{- end }}
{{- include "confplane.guards.autoscaling" . }}
{{- include "confplane.guards.routes" . }}
{{- include "confplane.guards.rollups" . }}
{{- end }}

{{- define "confplane.guards.secrets" -}}
{{- if .Values.trial.enabled }}
{{- range $name, $secret := .Values.secrets }}
{{- if $secret.name }}
{{- fail (printf "\n\ntrial.enabled is true, and secrets.%s.name is set: a trial generates its secrets. Unset one of them" $name) }}
{{- end }}
{{- end }}
{{- else }}
{{- if not .Values.secrets.postgres.name }}
{{- fail "\n\nsecrets.postgres.name is not set: name an existing Secret whose key secrets.postgres.key holds the service role's postgresql:// DSN" }}
{{- end }}
{{- if not .Values.secrets.adminToken.name }}
{{- fail "\n\nsecrets.adminToken.name is not set: name an existing Secret whose key secrets.adminToken.key holds the bearer token of the administrator" }}
{{- end }}
{{- if and .Values.migrations.enabled (not .Values.secrets.postgresMigration.name) }}
{{- fail "\n\nsecrets.postgresMigration.name is not set: name an existing Secret whose key secrets.postgresMigration.key holds the DSN of the role that owns the tables, or set migrations.enabled=false and run `confplane migrate` yourself" }}
{{- end }}
{{- end }}
{{- $keys := include "confplane.keys" . | fromYaml }}
{{- if and (hasKey $keys "console") .Values.settings.console_key_file }}
{{- fail "\n\nsecrets.consoleKey.name and settings.console_key_file are both set: the first mounts the key file, the second names one of your own. Unset one of them" }}
{{- end }}
{{- if and (hasKey $keys "webhooks") .Values.settings.webhooks.key_file }}
{{- fail "\n\nsecrets.webhooksKey.name and settings.webhooks.key_file are both set: the first mounts the key file, the second names one of your own. Unset one of them" }}
{{- end }}
{{- if and (hasKey $keys "console") .Values.settings.console (not .Values.settings.http.public_url) }}
{{- fail "\n\nsecrets.consoleKey.name is set without settings.http.public_url: set it to the origin at which browsers reach the console, e.g. https://confplane.example.com" }}
{{- end }}
{{- end }}

{{- define "confplane.guards.autoscaling" -}}
{{- with .Values.autoscaling }}
{{- if .enabled }}
{{- if gt (int .minReplicas) (int .maxReplicas) }}
{{- fail (printf "\n\nautoscaling.minReplicas (%d) is above autoscaling.maxReplicas (%d)" (int .minReplicas) (int .maxReplicas)) }}
{{- end }}
{{- if not (or .targetCPUUtilizationPercentage .metrics) }}
{{- fail "\n\nautoscaling.enabled is true without a metric: set autoscaling.targetCPUUtilizationPercentage or autoscaling.metrics" }}
{{- end }}
{{- if and .targetCPUUtilizationPercentage (not (dig "requests" "cpu" "" ($.Values.resources | default dict))) }}
{{- fail "\n\nautoscaling.targetCPUUtilizationPercentage is a share of resources.requests.cpu, which is not set: set it, or set the percentage to null and give autoscaling.metrics" }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "confplane.guards.routes" -}}
{{- $hosts := list }}
{{- with .Values.ingress }}
{{- if .enabled }}
{{- if not .hosts }}
{{- fail "\n\ningress.enabled is true, and ingress.hosts is empty: name at least one host, e.g. --set ingress.hosts={confplane.example.com}" }}
{{- end }}
{{- range $entry := .tls }}
{{- range $entry.hosts }}
{{- if not (has . $.Values.ingress.hosts) }}
{{- fail (printf "\n\ningress.tls has the host %s, which is not in ingress.hosts" .) }}
{{- end }}
{{- end }}
{{- end }}
{{- $hosts = concat $hosts .hosts }}
{{- end }}
{{- end }}
{{- with .Values.httpRoute }}
{{- if .enabled }}
{{- if not .parentRefs }}
{{- fail "\n\nhttpRoute.enabled is true, and httpRoute.parentRefs is empty: name the Gateway, e.g. --set httpRoute.parentRefs[0].name=public" }}
{{- end }}
{{- $hosts = concat $hosts .hostnames }}
{{- end }}
{{- end }}
{{- $url := .Values.settings.http.public_url }}
{{- if and $url $hosts (not (contains "*" (join "" $hosts))) }}
{{- $host := (urlParse $url).hostname }}
{{- if not (has $host $hosts) }}
{{- fail (printf "\n\nsettings.http.public_url names the host %s, to which no route leads: add it to ingress.hosts or httpRoute.hostnames (%s)" $host (join ", " $hosts)) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "confplane.guards.rollups" -}}
{{- with .Values.rollups }}
{{- if .enabled }}
{{- if not .image.repository }}
{{- fail "\n\nrollups.image.repository is not set: give the repository of the image confplane-rollups, which `make images` builds" }}
{{- end }}
{{- range .clusters }}
{{- if not (hasKey $.Values.settings.clusters .) }}
{{- fail (printf "\n\nrollups.clusters names %s, which is not in settings.clusters" .) }}
{{- end }}
{{- end }}
{{- if and (eq .mode "standalone") (not .master) }}
{{- fail "\n\nrollups.mode is standalone without rollups.master: give the master of the Spark cluster, e.g. spark://spark:7077" }}
{{- end }}
{{- if and .master (ne .mode "standalone") }}
{{- fail (printf "\n\nrollups.master is for rollups.mode=standalone alone, which is %s: unset rollups.master or change the mode" .mode) }}
{{- end }}
{{- if and .sparkConf (eq .mode "local") }}
{{- fail "\n\nrollups.sparkConf is for the modes standalone and kubernetes: unset it, or change rollups.mode" }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
