{{/*
The proxy's container and volumes, for the gateway and for a chart of your own that depends
on this one with mode: sidecar:

  containers:
    - name: app    # listens on 127.0.0.1 only; config.upstreams names its port
    {{- include "onlyonce.container" .Subcharts.onlyonce | nindent 4 }}
  volumes:
    {{- include "onlyonce.volumes" .Subcharts.onlyonce | nindent 4 }}

Let the targetPort of your Service be onlyonce. With a fingerprint secret or a
console, the pod's securityContext needs fsGroup: 65532.
*/}}
{{- define "onlyonce.container" -}}
- name: onlyonce
  image: {{ include "onlyonce.image" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args:
    - proxy
    - --config=/etc/onlyonce/config/proxy.yaml
    - --listen=:8080
    - --admin=:9090
    {{- if .Values.fingerprint.existingSecret }}
    - --fingerprint-secret-file=/etc/onlyonce/fingerprint/secret
    {{- end }}
    {{- if .Values.console.existingSecret }}
    - --console-tokens=/etc/onlyonce/console/tokens
    {{- range .Values.console.redact }}
    - {{ printf "--console-redact=%s" . | quote }}
    {{- end }}
    {{- end }}
  env:
    - name: ONLYONCE_STORE
      valueFrom:
        secretKeyRef:
          name: {{ required "store.existingSecret is required: the name of a Secret with the URL of the store" .Values.store.existingSecret | quote }}
          key: {{ .Values.store.key | quote }}
    {{- with .Values.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - name: onlyonce
      containerPort: 8080
    - name: onlyonce-admin
      containerPort: 9090
  # A start can take a while: the proxy waits for the store's tables.
  startupProbe:
    httpGet:
      path: /healthz
      port: onlyonce-admin
    periodSeconds: 2
    failureThreshold: 60
  livenessProbe:
    httpGet:
      path: /healthz
      port: onlyonce-admin
    periodSeconds: 10
    timeoutSeconds: 5
  readinessProbe:
    httpGet:
      path: /readyz
      port: onlyonce-admin
    periodSeconds: 5
    timeoutSeconds: 5
  {{- with .Values.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    capabilities:
      drop: [ALL]
    seccompProfile:
      type: RuntimeDefault
  volumeMounts:
    - name: onlyonce-config
      mountPath: /etc/onlyonce/config
      readOnly: true
    - name: onlyonce-data
      mountPath: /data
    {{- if .Values.fingerprint.existingSecret }}
    - name: onlyonce-fingerprint
      mountPath: /etc/onlyonce/fingerprint
      readOnly: true
    {{- end }}
    {{- if .Values.console.existingSecret }}
    - name: onlyonce-console
      mountPath: /etc/onlyonce/console
      readOnly: true
    {{- end }}
    {{- with .Values.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{- define "onlyonce.volumes" -}}
- name: onlyonce-config
  configMap:
    name: {{ include "onlyonce.fullname" . }}
- name: onlyonce-data
  emptyDir: {}
{{- if .Values.fingerprint.existingSecret }}
- name: onlyonce-fingerprint
  secret:
    secretName: {{ .Values.fingerprint.existingSecret | quote }}
    defaultMode: 0440
    items:
      - key: {{ .Values.fingerprint.key | quote }}
        path: secret
{{- end }}
{{- if .Values.console.existingSecret }}
- name: onlyonce-console
  secret:
    secretName: {{ .Values.console.existingSecret | quote }}
    defaultMode: 0440
    items:
      - key: {{ .Values.console.key | quote }}
        path: tokens
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
