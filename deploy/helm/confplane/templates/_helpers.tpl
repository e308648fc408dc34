{{/* The chart's name, at most 63 characters as Kubernetes allows in a label. */}}
{{- define "confplane.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The name of the release's objects. It is cut at 52, so that "-migrations" and what Kubernetes appends still fit. */}}
{{- define "confplane.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{/* What never changes during the life of a release: selectors are made of these. The component is given apart. */}}
{{- define "confplane.identity" -}}
app.kubernetes.io/name: {{ include "confplane.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The pods that serve; those of the migration Job are another component, so that no Service ever selects them. */}}
{{- define "confplane.selector" -}}
{{ include "confplane.identity" . }}
app.kubernetes.io/component: server
{{- end }}

{{- define "confplane.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: confplane
{{- end }}

{{- define "confplane.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "confplane.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "confplane.image" -}}
{{- $image := .Values.image }}
{{- if $image.digest }}
{{- printf "%s@%s" $image.repository $image.digest }}
{{- else }}
{{- printf "%s:%s" $image.repository (default .Chart.AppVersion $image.tag) }}
{{- end }}
{{- end }}

{{/* The file that CONFPLANE_SETTINGS_FILE names. Port and token path are the chart's own: the other templates rely on them. */}}
{{- define "confplane.settings" -}}
{{- $own := dict "http" (dict "port" 8080) "admin_token_file" "/etc/confplane/admin/token" }}
{{- toYaml (mustMergeOverwrite (deepCopy .Values.settings) $own) }}
{{- end }}

{{/* Hardening that no value can loosen. Ids are values, since some platforms assign their own. */}}
{{- define "confplane.podSecurityContext" -}}
{{- with .Values.podSecurityContext }}
{{- toYaml . }}
{{ end -}}
runAsNonRoot: true
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "confplane.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop:
    - ALL
{{- end }}

{{- define "confplane.env" -}}
- name: CONFPLANE_SETTINGS_FILE
  value: /etc/confplane/settings.yaml
- name: CONFPLANE_POSTGRES__DSN
  valueFrom:
    secretKeyRef:
      name: {{ .Values.secrets.postgres.name | quote }}
      key: {{ .Values.secrets.postgres.key | quote }}
{{- end }}

{{/* Whatever the schema cannot say with a message that helps. Included once, by the Deployment. */}}
{{- define "confplane.guards" -}}
{{- if not .Values.image.repository }}
{{- fail "\n\nimage.repository is not set: there is no default image. Build one as the chart's README says and give its repository, e.g. --set image.repository=images.example.com/confplane" }}
{{- end }}
{{- if not .Values.settings.clusters }}
{{- fail "\n\nsettings.clusters is empty: name at least one Kafka cluster and its ZooKeeper, e.g. --set settings.clusters.payments.zookeeper=zk-0.zk:2181/kafka" }}
{{- end }}
{{- if not .Values.secrets.postgres.name }}
{{- fail "\n\nsecrets.postgres.name is not set: name an existing Secret whose key secrets.postgres.key holds the service role's postgresql:// DSN" }}
{{- end }}
{{- if not .Values.secrets.adminToken.name }}
{{- fail "\n\nsecrets.adminToken.name is not set: name an existing Secret whose key secrets.adminToken.key holds the bearer token of the administrator" }}
{{- end }}
{{- if and .Values.migrations.enabled (not .Values.secrets.postgresMigration.name) }}
{{- fail "\n\nsecrets.postgresMigration.name is not set: name an existing Secret whose key secrets.postgresMigration.key holds the DSN of the role that owns the tables, or set migrations.enabled=false and run `confplane migrate` yourself" }}
{{- end }}
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
{{- end }}
