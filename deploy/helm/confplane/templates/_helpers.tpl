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

{{/* The name of an image: a list of the image's values and the root. */}}
{{- define "confplane.image" -}}
{{- $image := first . }}
{{- if $image.digest }}
{{- printf "%s@%s" $image.repository $image.digest }}
{{- else }}
{{- printf "%s:%s" $image.repository (default (last .).Chart.AppVersion $image.tag) }}
{{- end }}
{{- end }}

{{/* The name and the key of a Secret, as YAML: a list of its name below `secrets` and the root. */}}
{{- define "confplane.secret" -}}
{{- $root := last . }}
{{- if $root.Values.trial.enabled }}
name: {{ include "confplane.fullname" $root }}-trial
key: {{ first . }}
{{- else }}
{{- toYaml (get $root.Values.secrets (first .)) }}
{{- end }}
{{- end }}

{{/* The keys that are mounted as files below /etc/confplane, as YAML: folder -> the Secret's name below `secrets`. */}}
{{- define "confplane.keys" -}}
admin: adminToken
{{- if or .Values.trial.enabled .Values.secrets.consoleKey.name }}
console: consoleKey
{{- end }}
{{- if or .Values.trial.enabled .Values.secrets.webhooksKey.name }}
webhooks: webhooksKey
{{- end }}
{{- end }}

{{/* The file that CONFPLANE_SETTINGS_FILE names. Port and paths of keys are the chart's own: other templates rely on them. */}}
{{- define "confplane.settings" -}}
{{- $own := dict "http" (dict "port" 8080) "admin_token_file" "/etc/confplane/admin/token" }}
{{- $keys := include "confplane.keys" . | fromYaml }}
{{- if hasKey $keys "console" }}
{{- $own = set $own "console_key_file" "/etc/confplane/console/key" }}
{{- end }}
{{- if hasKey $keys "webhooks" }}
{{- $own = set $own "webhooks" (dict "key_file" "/etc/confplane/webhooks/key") }}
{{- end }}
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
      {{- include "confplane.secret" (list "postgres" .) | nindent 6 }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The volumes of every pod that reads the settings: a list of the ConfigMap's name and the root. */}}
{{- define "confplane.volumes" -}}
- name: settings
  configMap:
    name: {{ first . }}
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
{{- with (last .).Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "confplane.volumeMounts" -}}
- name: settings
  mountPath: /etc/confplane/settings.yaml
  subPath: settings.yaml
  readOnly: true
- name: tmp
  mountPath: /tmp
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* What all pods have in common. */}}
{{- define "confplane.pod" -}}
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "confplane.podSecurityContext" . | nindent 2 }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The container that migrates the database: of the Job, or of the pods of a trial, whose Postgres no hook can wait for. */}}
{{- define "confplane.migrate" -}}
- name: migrate
  image: {{ include "confplane.image" (list .Values.image .) | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: ["confplane", "migrate"]
  securityContext:
    {{- include "confplane.containerSecurityContext" . | nindent 4 }}
  env:
    {{- include "confplane.env" . | nindent 4 }}
    - name: CONFPLANE_POSTGRES__MIGRATION_DSN
      valueFrom:
        secretKeyRef:
          {{- include "confplane.secret" (list "postgresMigration" .) | nindent 10 }}
  resources:
    {{- toYaml .Values.migrations.resources | nindent 4 }}
  volumeMounts:
    {{- include "confplane.volumeMounts" . | nindent 4 }}
{{- end }}

{{/* The name of a cluster's rollups, at most 52 characters as for a CronJob: a list of the cluster's name and the root. */}}
{{- define "confplane.rollups.name" -}}
{{- $name := printf "%s-rollups-%s" (include "confplane.fullname" (last .)) (first .) }}
{{- if gt (len $name) 52 }}
{{- $name = printf "%s-%s" (trunc 43 $name | trimSuffix "-") (sha256sum $name | trunc 8) }}
{{- end }}
{{- $name }}
{{- end }}

{{/* The ServiceAccount of the rollups. */}}
{{- define "confplane.rollups.serviceAccountName" -}}
{{- if .Values.rollups.serviceAccountName }}
{{- .Values.rollups.serviceAccountName }}
{{- else if eq .Values.rollups.mode "kubernetes" }}
{{- include "confplane.fullname" . }}-rollups
{{- else }}
{{- include "confplane.serviceAccountName" . }}
{{- end }}
{{- end }}

{{/* Spark's properties for the driver of a cluster's rollups: a list of the cluster's name and the root. */}}
{{- define "confplane.rollups.spark" -}}
{{- $root := last . }}
{{- $rollups := $root.Values.rollups }}
{{- $own := dict
  "spark.driver.host" (include "confplane.rollups.name" .)
  "spark.driver.bindAddress" "0.0.0.0"
  "spark.driver.port" "7078"
  "spark.driver.blockManager.port" "7079"
  "spark.executor.cores" $rollups.executors.cores
  "spark.executor.memory" $rollups.executors.memory
  "spark.ui.enabled" "false"
}}
{{- if eq $rollups.mode "kubernetes" }}
{{- $own = merge $own (dict
  "spark.executor.instances" $rollups.executors.instances
  "spark.kubernetes.namespace" $root.Release.Namespace
  "spark.kubernetes.container.image" (include "confplane.image" (list $rollups.image $root))
  "spark.kubernetes.container.image.pullPolicy" $rollups.image.pullPolicy
  "spark.kubernetes.executor.podTemplateFile" "/etc/confplane/spark/executor.yaml"
  "spark.kubernetes.executor.podTemplateContainerName" "executor"
) }}
{{- end }}
{{- range $name, $value := mergeOverwrite $own (deepCopy (default dict $rollups.sparkConf)) }}
{{ $name }} {{ $value }}
{{- end }}
{{- end }}
