// Package deploytest tests the files with which onlyonce is deployed: the Dockerfile, the files
// under deploy, and the alerts and the dashboard over its metrics.
//
// It is a module outside go.work, because Helm, Kubernetes and Prometheus would
// otherwise raise the versions of the modules that onlyonce is built from. Run its tests
// with make deploy.
package deploytest
