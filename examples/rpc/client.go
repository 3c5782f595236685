// Verifies an access token and lists that user's surveys: Go with grpc-go.
//
// Stubs, into DIR/gen of a module called example.com/report, with protoc-gen-go and protoc-gen-go-grpc on the PATH:
//
//	npx buf generate -o DIR --path proto/surveyauth/v1 --path proto/buf --template '{"version":"v2",
//	  "managed":{"enabled":true,"override":[{"file_option":"go_package_prefix","value":"example.com/report/gen"}]},
//	  "plugins":[{"local":"protoc-gen-go","out":"gen","opt":"paths=source_relative"},
//	    {"local":"protoc-gen-go-grpc","out":"gen","opt":"paths=source_relative"}]}'
//
// Libraries: google.golang.org/grpc 1.33 or newer, google.golang.org/protobuf (Debian: golang-google-grpc-dev with
// golang-github-golang-protobuf-1-5-dev, protoc-gen-go, protoc-gen-go-grpc).
// A program that uses protovalidate itself names that module for buf/validate instead, and omits its file.
// Retry: both calls only read, so Unavailable may be retried, after a pause; other failures would only repeat.
// Deadline: 4.5 s, as the gateway's; without one a call may take the server's maximum, 30 s.
// Run: TOKEN_SERVICE_URL=unix:data/rpc.sock SURVEY_SERVICE_URL=unix:data/rpc.sock APPID=… ACCESS_TOKEN=… OPENID=… go run
// client.go; http://127.0.0.1:port works too, and for https://host:port RPC_TLS_CA, RPC_TLS_CERT, RPC_TLS_KEY (PEM files).
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	pb "example.com/report/gen/surveyauth/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/local"
)

func dial(url string) *grpc.ClientConn {
	transport := local.NewCredentials() // none, and only behind a Unix socket or on loopback
	if strings.HasPrefix(url, "https://") {
		certificate := must(tls.LoadX509KeyPair(os.Getenv("RPC_TLS_CERT"), os.Getenv("RPC_TLS_KEY")))
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(must(os.ReadFile(os.Getenv("RPC_TLS_CA"))))
		transport = credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{certificate}, RootCAs: roots})
	}
	target := strings.TrimPrefix(strings.TrimPrefix(url, "https://"), "http://")
	return must(grpc.Dial(target, grpc.WithTransportCredentials(transport))) // since 1.63 also grpc.NewClient
}

func main() {
	log.SetFlags(0)
	ctx, cancel := context.WithTimeout(context.Background(), 4500*time.Millisecond)
	defer cancel()
	appid, accessToken, openid := os.Getenv("APPID"), os.Getenv("ACCESS_TOKEN"), os.Getenv("OPENID")
	tokens := pb.NewTokenServiceClient(dial(os.Getenv("TOKEN_SERVICE_URL")))
	token := must(tokens.VerifyAccessToken(ctx, &pb.VerifyAccessTokenRequest{Appid: appid, AccessToken: accessToken, Openid: openid}))
	fmt.Println(token.GetOpenid(), token.GetScope())
	surveys := pb.NewSurveyServiceClient(dial(os.Getenv("SURVEY_SERVICE_URL")))
	answer := must(surveys.ListSurveys(ctx, &pb.ListSurveysRequest{Appid: appid, AccessToken: accessToken, Openid: openid, PageSize: 100}))
	for _, survey := range answer.GetSurveys() {
		fmt.Println(survey.GetId(), survey.GetTitle())
	}
}

// must ends the program on a failure; the reason is the *errdetails.ErrorInfo in status.Convert(err).Details().
func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
