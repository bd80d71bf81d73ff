// Package sdktest tests otelonce with the SDK of OpenTelemetry. It is a module of its own, so
// that no user of otelonce gets the SDK into the module graph.
package sdktest
