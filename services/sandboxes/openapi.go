package sandboxes

import _ "embed" // for the description

//go:embed openapi.yaml
var openAPI string

// OpenAPI returns the description of the API in OpenAPI 3.1, as YAML.
func OpenAPI() string { return openAPI }
