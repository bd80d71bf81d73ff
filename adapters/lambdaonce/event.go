package lambdaonce

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/aws/aws-lambda-go/events"
)

// An HTTPEvent is the event of a request. One of its fields is set.
type HTTPEvent struct {
	V1 *events.APIGatewayProxyRequest  // of a REST API, or of an HTTP API in payload format 1.0
	V2 *events.APIGatewayV2HTTPRequest // of an HTTP API in payload format 2.0, or of a function URL

	decoded bool // API Gateway has decoded the path, as HTTP APIs do
}

type eventKey struct{}

// Event returns the event of a request, with its request ID, its stage and what the API's
// authorizer has found out. It panics if HTTPHandler did not make the request.
func Event(r *http.Request) HTTPEvent {
	e, ok := r.Context().Value(eventKey{}).(HTTPEvent)
	if !ok {
		panic("lambdaonce: Event: the request is not one of HTTPHandler")
	}
	return e
}

// poolSession is the end of the ARN of every user of a Cognito identity pool.
const poolSession = "/CognitoIdentityCredentials"

// Principal returns the name of the caller that the API's authorizer has verified, or "" if there
// is none. It is meant for httponce.Config.Tenant:
//
//	jwt ISS SUB   two claims of the token that a JWT or Cognito authorizer has accepted
//	lambda ID     the principalId of a Lambda authorizer, which must name one caller; in payload
//	              format 2.0, that in its context
//	cognito ID    a user of a Cognito identity pool; the users of a pool sign as one role
//	iam ARN       any other signer of the request, even if it signs for others, as CloudFront
//	              does; the ARN of a role ends with the name of the session, which whoever
//	              assumes the role may choose
//
// It panics if HTTPHandler did not make the request.
func Principal(r *http.Request) string {
	e := Event(r)
	var claims, own map[string]any
	var arn, user string
	if e.V1 != nil {
		signer := &e.V1.RequestContext.Identity
		own, arn, user = e.V1.RequestContext.Authorizer, signer.UserArn, signer.CognitoIdentityID
		claims, _ = own["claims"].(map[string]any)
	} else if a := e.V2.RequestContext.Authorizer; a != nil {
		own = a.Lambda
		if a.JWT != nil {
			claims = map[string]any{"iss": a.JWT.Claims["iss"], "sub": a.JWT.Claims["sub"]}
		}
		if a.IAM != nil {
			arn, user = a.IAM.UserARN, a.IAM.CognitoIdentity.IdentityID
		}
	}
	issuer, _ := claims["iss"].(string)
	subject, _ := claims["sub"].(string)
	id, _ := own["principalId"].(string)
	switch {
	case claims != nil && (issuer == "" || subject == ""):
		return ""
	case claims != nil:
		return "jwt " + issuer + " " + subject
	case id != "":
		return "lambda " + id
	case user != "":
		return "cognito " + user
	case arn != "" && !strings.HasSuffix(arn, poolSession):
		return "iam " + arn
	}
	return ""
}

// readEvent reads an event in any of the formats.
func readEvent(payload []byte) (e HTTPEvent, err error) {
	var format struct {
		Version        string `json:"version"`
		HTTPMethod     string `json:"httpMethod"`
		RequestContext struct {
			RequestID  string `json:"requestId"`
			DomainName string `json:"domainName"`
			HTTP       struct {
				Method string `json:"method"`
			} `json:"http"`
		} `json:"requestContext"`
	}
	if err = json.Unmarshal(payload, &format); err != nil {
		return e, fmt.Errorf("lambdaonce: decode the event: %w", err)
	}
	switch {
	case format.Version == "2.0" && format.RequestContext.HTTP.Method != "":
		e.decoded = !strings.Contains(format.RequestContext.DomainName, ".lambda-url.")
		err = json.Unmarshal(payload, &e.V2)
	case format.HTTPMethod != "" && format.RequestContext.RequestID != "":
		e.decoded = format.Version == "1.0"
		err = json.Unmarshal(payload, &e.V1)
	default:
		return e, errors.New("lambdaonce: the event is not a request: HTTPHandler is for API Gateway with a proxy integration, and for function URLs")
	}
	if err != nil {
		return e, fmt.Errorf("lambdaonce: decode the event: %w", err)
	}
	return e, nil
}
