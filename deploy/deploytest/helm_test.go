package deploytest

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

const chartFolder = repository + "/deploy/helm/onlyonce"

// values returns those of a file under the chart's ci.
func values(t *testing.T, name string) map[string]any {
	t.Helper()
	found, err := common.ReadValuesFile(filepath.Join(chartFolder, "ci", name))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// render returns the documents of a chart's templates, by kind.
func render(t *testing.T, c *chart.Chart, with map[string]any) (map[string]any, error) {
	t.Helper()
	options := common.ReleaseOptions{Name: "shop", Namespace: "payments", Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(c, with, options, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	objects := make(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		for document := range strings.SplitSeq(files[name], "\n---\n") {
			if strings.TrimSpace(document) == "" {
				continue
			}
			object := decodeObject(t, name, document)
			kind := fmt.Sprintf("%T", object)
			if objects[kind] != nil {
				t.Errorf("two objects are %s", kind)
			}
			objects[kind] = object
		}
	}
	return objects, nil
}

// decodeObject decodes a document into its type of Kubernetes, and rejects fields that
// the type does not have.
func decodeObject(t *testing.T, name, document string) any {
	t.Helper()
	var head struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal([]byte(document), &head); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, document)
	}
	known := map[string]any{
		"apps/v1/Deployment":                     &appsv1.Deployment{},
		"v1/Service":                             &corev1.Service{},
		"v1/ConfigMap":                           &corev1.ConfigMap{},
		"v1/ServiceAccount":                      &corev1.ServiceAccount{},
		"autoscaling/v2/HorizontalPodAutoscaler": &autoscalingv2.HorizontalPodAutoscaler{},
		"policy/v1/PodDisruptionBudget":          &policyv1.PodDisruptionBudget{},
		"networking.k8s.io/v1/NetworkPolicy":     &networkingv1.NetworkPolicy{},
	}
	object := known[head.APIVersion+"/"+head.Kind]
	if object == nil {
		t.Fatalf("%s is a %s of %s", name, head.Kind, head.APIVersion)
	}
	decode(t, name, document, object)
	return object
}

func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(chartFolder)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// rendered renders the chart with the values of a file.
func rendered(t *testing.T, file string) map[string]any {
	t.Helper()
	objects, err := render(t, loadChart(t), values(t, file))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func TestHelm_TheLinterFindsNothing(t *testing.T) {
	for _, file := range []string{"minimal-values.yaml", "full-values.yaml", "sidecar-values.yaml"} {
		result := lint.RunAll(chartFolder, values(t, file), "payments")
		for _, message := range result.Messages {
			if message.Severity >= support.InfoSev {
				t.Errorf("%s: %v", file, message)
			}
		}
	}
}

func TestHelm_EachModeRendersItsObjects(t *testing.T) {
	for file, want := range map[string][]string{
		"minimal-values.yaml": {"*v1.ConfigMap", "*v1.Deployment", "*v1.PodDisruptionBudget", "*v1.Service", "*v1.ServiceAccount"},
		"full-values.yaml":    {"*v1.ConfigMap", "*v1.Deployment", "*v1.NetworkPolicy", "*v1.PodDisruptionBudget", "*v1.Service", "*v1.ServiceAccount", "*v2.HorizontalPodAutoscaler"},
		"sidecar-values.yaml": {"*v1.ConfigMap"},
	} {
		if got := slices.Sorted(maps.Keys(rendered(t, file))); !slices.Equal(got, want) {
			t.Errorf("%s renders %v, want %v", file, got, want)
		}
	}
}

func TestHelm_ValuesThatAreNotSafeAreRejected(t *testing.T) {
	for _, test := range []struct {
		change func(map[string]any)
		want   string
	}{
		{func(v map[string]any) { delete(v, "store") }, "store.existingSecret is required"},
		{func(v map[string]any) { delete(v["config"].(map[string]any), "tenant") }, "config.tenant is required"},
		{func(v map[string]any) { delete(v["config"].(map[string]any), "upstreams") }, "config.upstreams is required"},
		{func(v map[string]any) {
			v["config"].(map[string]any)["store"] = map[string]any{"url": "postgres://app:secret@db/shop"}
		}, "config.store.url would be in a ConfigMap"},
		{func(v map[string]any) { v["mode"] = "daemon" }, "mode"},
		{func(v map[string]any) { v["image"] = map[string]any{"digest": "latest"} }, "digest"},
		{func(v map[string]any) { v["store"] = map[string]any{"url": "postgres://"} }, "additional properties 'url' not allowed"},
	} {
		with := values(t, "minimal-values.yaml")
		test.change(with)
		if _, err := render(t, loadChart(t), with); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want an error with %q", err, test.want)
		}
	}
}

// checkPod checks that the proxy's container can run as the pod lets it.
func checkPod(t *testing.T, pod corev1.PodSpec, config *corev1.ConfigMap) {
	t.Helper()
	at := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == "onlyonce" })
	if at < 0 {
		t.Fatal("the pod has no container onlyonce")
	}
	container := pod.Containers[at]
	var variables []string
	for _, variable := range container.Env {
		variables = append(variables, variable.Name)
		if variable.Name == "ONLYONCE_STORE" && (variable.ValueFrom == nil || variable.ValueFrom.SecretKeyRef == nil || variable.Value != "") {
			t.Error("the URL of the store is not from a Secret")
		}
	}
	checkCommand(t, "the container", container.Args, variables)

	context := container.SecurityContext
	if user := last(t, "USER"); fmt.Sprintf("%d:%d", *context.RunAsUser, *context.RunAsGroup) != user {
		t.Errorf("the container runs as %d:%d, the image as %s", *context.RunAsUser, *context.RunAsGroup, user)
	}
	if !*context.RunAsNonRoot || !*context.ReadOnlyRootFilesystem || *context.AllowPrivilegeEscalation || !slices.Equal(context.Capabilities.Drop, []corev1.Capability{"ALL"}) || context.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the container is not confined: %v", context)
	}

	ports := make(map[string]string)
	for _, port := range container.Ports {
		ports[port.Name] = fmt.Sprintf(":%d", port.ContainerPort)
	}
	if !slices.Contains(container.Args, "--listen="+ports["onlyonce"]) || !slices.Contains(container.Args, "--admin="+ports["onlyonce-admin"]) {
		t.Errorf("the ports %v are not those of %v", ports, container.Args)
	}
	for path, probe := range map[string]*corev1.Probe{"/healthz": container.LivenessProbe, "/readyz": container.ReadinessProbe} {
		if probe.HTTPGet.Path != path || probe.HTTPGet.Port.String() != "onlyonce-admin" {
			t.Errorf("a probe asks for %v, want %s at the admin address", probe.HTTPGet, path)
		}
	}
	if container.StartupProbe.HTTPGet.Path != "/healthz" {
		t.Errorf("the startup probe asks for %s", container.StartupProbe.HTTPGet.Path)
	}

	mounts := make(map[string]string)
	for _, mount := range container.VolumeMounts {
		mounts[mount.MountPath] = mount.Name
		if !mount.ReadOnly && mount.MountPath != last(t, "WORKDIR") {
			t.Errorf("%s can be written to", mount.MountPath)
		}
		volume := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
		if volume < 0 {
			t.Errorf("there is no volume %s", mount.Name)
			continue
		}
		if secret := pod.Volumes[volume].Secret; secret != nil && (secret.DefaultMode == nil || *secret.DefaultMode&0o027 != 0) {
			t.Errorf("the secret %s has a mode that onlyonce rejects", mount.Name)
		}
		if source := pod.Volumes[volume].ConfigMap; source != nil && source.Name != config.Name {
			t.Errorf("the volume %s is the ConfigMap %s, not %s", mount.Name, source.Name, config.Name)
		}
	}
	if mounts[last(t, "WORKDIR")] == "" {
		t.Errorf("nothing is mounted at %s, which the image writes to", last(t, "WORKDIR"))
	}
	for _, argument := range container.Args {
		flag, file, isFile := strings.Cut(argument, "=/")
		if flag == "--console-redact" {
			continue // a JSON Pointer
		}
		if _, mounted := mounts["/"+filepath.Dir(file)]; isFile && !mounted {
			t.Errorf("%s is in no volume", argument)
		}
	}
	checkConfig(t, config.Data["proxy.yaml"])
}

// checkConfig lets onlyonce check the settings in a ConfigMap.
func checkConfig(t *testing.T, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "proxy.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	check := exec.CommandContext(t.Context(), builtBinary(t), "proxy", "--config", file, "--check-config")
	check.Env = []string{"ONLYONCE_STORE=postgres://app@db/shop"}
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s\n%s", err, out, text)
	}
}

func TestHelm_TheGatewayRunsConfined(t *testing.T) {
	for _, file := range []string{"minimal-values.yaml", "full-values.yaml"} {
		t.Run(file, func(t *testing.T) {
			objects := rendered(t, file)
			deployment := objects["*v1.Deployment"].(*appsv1.Deployment)
			pod := deployment.Spec.Template.Spec
			checkPod(t, pod, objects["*v1.ConfigMap"].(*corev1.ConfigMap))
			if *pod.TerminationGracePeriodSeconds <= 30 || *pod.AutomountServiceAccountToken || *pod.SecurityContext.FSGroup != 65532 {
				t.Errorf("the pod is %+v", pod)
			}
			labels := deployment.Spec.Template.Labels
			service := objects["*v1.Service"].(*corev1.Service)
			for what, selector := range map[string]map[string]string{
				"Deployment":          deployment.Spec.Selector.MatchLabels,
				"Service":             service.Spec.Selector,
				"PodDisruptionBudget": objects["*v1.PodDisruptionBudget"].(*policyv1.PodDisruptionBudget).Spec.Selector.MatchLabels,
			} {
				for name, value := range selector {
					if labels[name] != value {
						t.Errorf("the %s selects %s=%s, the pods have %q", what, name, value, labels[name])
					}
				}
			}
			if len(service.Spec.Ports) != 1 || service.Spec.Ports[0].TargetPort.String() != "onlyonce" {
				t.Errorf("the service has the ports %v: the admin address must not be published", service.Spec.Ports)
			}
			scaled, autoscaling := objects["*v2.HorizontalPodAutoscaler"].(*autoscalingv2.HorizontalPodAutoscaler)
			if autoscaling != (deployment.Spec.Replicas == nil) || autoscaling && scaled.Spec.ScaleTargetRef.Name != deployment.Name {
				t.Error("the autoscaler and the Deployment disagree on who sets the replicas")
			}
		})
	}
}

func TestHelm_TheNetworkPolicyAllowsOnlyWhatIsListed(t *testing.T) {
	policy := rendered(t, "full-values.yaml")["*v1.NetworkPolicy"].(*networkingv1.NetworkPolicy)
	if len(policy.Spec.Ingress) != 2 || len(policy.Spec.Egress) != 3 {
		t.Errorf("the policy has the rules %v, %v", policy.Spec.Ingress, policy.Spec.Egress)
	}
	with := values(t, "minimal-values.yaml")
	with["networkPolicy"] = map[string]any{"enabled": true}
	objects, err := render(t, loadChart(t), with)
	if err != nil {
		t.Fatal(err)
	}
	policy = objects["*v1.NetworkPolicy"].(*networkingv1.NetworkPolicy)
	if len(policy.Spec.Ingress) != 0 || len(policy.Spec.PolicyTypes) != 2 {
		t.Errorf("without peers, the policy allows %v", policy.Spec.Ingress)
	}
}

func TestHelm_AnotherChartRunsTheSidecar(t *testing.T) {
	parent := &chart.Chart{
		Metadata: &chart.Metadata{APIVersion: "v2", Name: "orders", Version: "1.0.0"},
		Templates: []*common.File{{Name: "templates/deployment.yaml", Data: []byte(`apiVersion: apps/v1
kind: Deployment
metadata:
  name: orders
spec:
  selector: {matchLabels: {app: orders}}
  template:
    metadata: {labels: {app: orders}}
    spec:
      securityContext: {fsGroup: 65532}
      containers:
        - name: app
          image: orders:1
        {{- include "onlyonce.container" .Subcharts.onlyonce | nindent 8 }}
      volumes:
        {{- include "onlyonce.volumes" .Subcharts.onlyonce | nindent 8 }}
`)}},
	}
	parent.AddDependency(loadChart(t))
	objects, err := render(t, parent, map[string]any{"onlyonce": values(t, "sidecar-values.yaml")})
	if err != nil {
		t.Fatal(err)
	}
	checkPod(t, objects["*v1.Deployment"].(*appsv1.Deployment).Spec.Template.Spec, objects["*v1.ConfigMap"].(*corev1.ConfigMap))
}
