package deploytest

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/config"
)

// A composeFile has the parts of a Compose file that compose.yaml uses.
type composeFile struct {
	Name     string                    `json:"name"`
	Services map[string]composeService `json:"services"`
	Volumes  map[string]struct{}       `json:"volumes"`
}

type composeService struct {
	Image string `json:"image"`
	Build *struct {
		Context string `json:"context"`
	} `json:"build"`
	Command     []string          `json:"command"`
	Environment map[string]string `json:"environment"`
	Ports       []string          `json:"ports"`
	Volumes     []string          `json:"volumes"`
	DependsOn   map[string]struct {
		Condition string `json:"condition"`
	} `json:"depends_on"`
	NetworkMode     string   `json:"network_mode"`
	ReadOnly        bool     `json:"read_only"`
	CapDrop         []string `json:"cap_drop"`
	SecurityOpt     []string `json:"security_opt"`
	StopGracePeriod string   `json:"stop_grace_period"`
	Restart         string   `json:"restart"`
	Healthcheck     *struct {
		Test     []string `json:"test"`
		Interval string   `json:"interval"`
		Timeout  string   `json:"timeout"`
		Retries  int      `json:"retries"`
	} `json:"healthcheck"`
}

func readCompose(t *testing.T) composeFile {
	t.Helper()
	var file composeFile
	decode(t, "compose.yaml", read(t, "deploy/compose.yaml"), &file)
	return file
}

// imageEnvironment returns the variables that the image sets.
func imageEnvironment(t *testing.T) map[string]string {
	t.Helper()
	found := make(map[string]string)
	for setting := range strings.FieldsSeq(last(t, "ENV")) {
		name, value, _ := strings.Cut(setting, "=")
		found[name] = value
	}
	return found
}

// pinned matches an image with at least the minor version in its tag.
var pinned = regexp.MustCompile(`^[a-z0-9./-]+:v?\d+\.\d+[a-z0-9.-]*$`)

func TestCompose_WhatItNamesExists(t *testing.T) {
	file := readCompose(t)
	for name, service := range file.Services {
		if service.Build == nil && !pinned.MatchString(service.Image) {
			t.Errorf("%s runs the image %q, which is not pinned", name, service.Image)
		}
		if service.Build != nil {
			if _, err := os.Stat(filepath.Join(repository, "deploy", service.Build.Context, "Dockerfile")); err != nil {
				t.Error(err)
			}
		}
		for _, volume := range service.Volumes {
			source, _, _ := strings.Cut(volume, ":")
			if !strings.HasPrefix(source, ".") {
				if _, known := file.Volumes[source]; !known {
					t.Errorf("%s: there is no volume %s", name, source)
				}
				continue
			}
			if _, err := os.Stat(filepath.Join(repository, "deploy", source)); err != nil || !strings.HasSuffix(volume, ":ro") {
				t.Errorf("%s mounts %s: %v", name, volume, err)
			}
		}
		for needed, how := range service.DependsOn {
			if file.Services[needed].Image == "" || how.Condition == "service_healthy" && file.Services[needed].Healthcheck == nil {
				t.Errorf("%s waits for %s to be %s", name, needed, how.Condition)
			}
		}
		if shared, ok := strings.CutPrefix(service.NetworkMode, "service:"); ok {
			if _, known := file.Services[shared]; !known {
				t.Errorf("%s shares the network of %s, which does not exist", name, shared)
			}
		}
		for _, port := range service.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s publishes %s to other machines", name, port)
			}
		}
	}
}

func TestCompose_TheProxyRunsWithFlagsThatItHas(t *testing.T) {
	file, image := readCompose(t), imageEnvironment(t)
	proxy := file.Services["proxy"]
	var variables []string
	for name := range proxy.Environment {
		variables = append(variables, name)
	}
	for name := range image {
		variables = append(variables, name)
	}
	checkCommand(t, "the service proxy", proxy.Command, variables)
	if !proxy.ReadOnly || !slices.Contains(proxy.CapDrop, "ALL") {
		t.Error("the proxy is not confined")
	}
	if grace, err := time.ParseDuration(proxy.StopGracePeriod); err != nil || grace <= 30*time.Second {
		t.Errorf("the proxy is killed after %v, %v: no longer than --shutdown-timeout", grace, err)
	}
	if want := []string{"127.0.0.1:8080" + image["ONLYONCE_LISTEN"], "127.0.0.1:9090" + image["ONLYONCE_ADMIN"]}; !slices.Equal(proxy.Ports, want) {
		t.Errorf("the proxy publishes %v, want %s", proxy.Ports, want)
	}
	if !slices.Contains(proxy.Command, "--console-tokens=/etc/onlyonce/console-tokens") || !slices.Contains(proxy.Volumes, "./console-tokens.example:/etc/onlyonce/console-tokens:ro") {
		t.Errorf("the console is off: %v, %v", proxy.Command, proxy.Volumes)
	}

	orders := file.Services["orders"]
	upstream := "--upstream=http://127.0.0.1:" + orders.Command[len(orders.Command)-1]
	if !slices.Contains(proxy.Command, upstream) || orders.NetworkMode != "service:proxy" || len(orders.Ports) > 0 {
		t.Errorf("the orders are not the proxy's own upstream %s", upstream)
	}

	store, err := url.Parse(proxy.Environment["ONLYONCE_STORE"])
	if err != nil {
		t.Fatal(err)
	}
	database := file.Services[store.Hostname()].Environment
	if password, _ := store.User.Password(); database["POSTGRES_USER"] != store.User.Username() || database["POSTGRES_PASSWORD"] != password || "/"+database["POSTGRES_DB"] != store.Path {
		t.Errorf("the store %v is not the database %v", store, database)
	}
}

func TestCompose_TheTokenOfTheConsoleIsAnExample(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository, "deploy", "console-tokens.example"))
	if err != nil {
		t.Fatal(err)
	}
	token := regexp.MustCompile(`example-console-token-\w+`).FindString(string(text))
	if want := fmt.Sprintf("\nexample writer %x\n", sha256.Sum256([]byte(token))); token == "" || !strings.HasSuffix(string(text), want) {
		t.Errorf("the file does not have the hash of %q:\n%s", token, text)
	}
}

func TestCompose_ItsSecretsAreExamples(t *testing.T) {
	for name, service := range readCompose(t).Services {
		for variable, value := range service.Environment {
			u, err := url.Parse(value)
			inURL := false
			if err == nil && u.User != nil {
				_, inURL = u.User.Password()
			}
			secret := regexp.MustCompile(`PASSWORD|SECRET|TOKEN|_KEY$`).MatchString(variable)
			if (secret || inURL) && !strings.Contains(value, "example") {
				t.Errorf("%s: %s may be a secret, and does not say that it is an example", name, variable)
			}
		}
	}
}

func TestCompose_PrometheusAndGrafanaFindWhatTheyShow(t *testing.T) {
	file := readCompose(t)
	settings, err := config.Load(read(t, "deploy/prometheus/prometheus.yml"), promslog.NewNopLogger())
	if err != nil {
		t.Fatal(err)
	}
	mounted := func(service, path string) bool {
		return slices.ContainsFunc(file.Services[service].Volumes, func(volume string) bool {
			return strings.HasSuffix(volume, ":"+path+":ro")
		})
	}
	for _, rules := range settings.RuleFiles {
		if !mounted("prometheus", "/etc/prometheus/"+rules) {
			t.Errorf("Prometheus reads %s, which is not mounted", rules)
		}
	}
	var prometheus struct {
		ScrapeConfigs []struct {
			JobName       string `json:"job_name"`
			StaticConfigs []struct {
				Targets []string `json:"targets"`
			} `json:"static_configs"`
		} `json:"scrape_configs"`
		Global    map[string]string `json:"global"`
		RuleFiles []string          `json:"rule_files"`
	}
	decode(t, "prometheus.yml", read(t, "deploy/prometheus/prometheus.yml"), &prometheus)
	if len(prometheus.ScrapeConfigs) != 1 || prometheus.ScrapeConfigs[0].JobName != "onlyonce" {
		t.Fatalf("Prometheus scrapes %v, and the alert OnlyonceDown names the job onlyonce", prometheus.ScrapeConfigs)
	}
	for _, target := range prometheus.ScrapeConfigs[0].StaticConfigs[0].Targets {
		host, port, err := net.SplitHostPort(target)
		if _, known := file.Services[host]; err != nil || !known || ":"+port != imageEnvironment(t)["ONLYONCE_ADMIN"] {
			t.Errorf("Prometheus scrapes %s, %v", target, err)
		}
	}

	var sources struct {
		APIVersion  int `json:"apiVersion"`
		Datasources []struct {
			Name, Type, UID, URL string
			IsDefault            bool
		} `json:"datasources"`
	}
	decodeLoose(t, "deploy/grafana/provisioning/datasources/prometheus.yaml", &sources)
	if len(sources.Datasources) != 1 || sources.Datasources[0].URL != "http://prometheus:9090" || sources.Datasources[0].Type != "prometheus" {
		t.Errorf("Grafana asks %v", sources.Datasources)
	}
	var dashboards struct {
		Providers []struct {
			Type    string
			Options struct{ Path string }
		}
	}
	decodeLoose(t, "deploy/grafana/provisioning/dashboards/onlyonce.yaml", &dashboards)
	if len(dashboards.Providers) != 1 || !mounted("grafana", dashboards.Providers[0].Options.Path+"/onlyonce.json") {
		t.Errorf("the dashboard is not where Grafana looks: %v", dashboards.Providers)
	}
	if home := file.Services["grafana"].Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]; !mounted("grafana", home) {
		t.Errorf("Grafana's home dashboard %s is not mounted", home)
	}
}
