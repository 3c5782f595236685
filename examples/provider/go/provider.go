// Answers which surveys an owner has, and the answers to them, from two SQL tables: Go with grpc-go.
//
// Stubs, into DIR/gen of a module called example.com/surveys, with protoc-gen-go and protoc-gen-go-grpc on the PATH:
//
//	npx buf generate -o DIR --path proto/surveyauth --path proto/buf --template '{"version":"v2",
//	  "managed":{"enabled":true,"override":[{"file_option":"go_package_prefix","value":"example.com/surveys/gen"}]},
//	  "plugins":[{"local":"protoc-gen-go","out":"gen","opt":"paths=source_relative"},
//	    {"local":"protoc-gen-go-grpc","out":"gen","opt":"paths=source_relative"}]}'
//
// Libraries: google.golang.org/grpc 1.33 or newer, google.golang.org/protobuf, github.com/mattn/go-sqlite3 (Debian:
// golang-google-grpc-dev, protoc-gen-go, protoc-gen-go-grpc, golang-github-mattn-go-sqlite3-dev).
// Run: PROVIDER_LISTEN=unix:provider.sock PROVIDER_DATABASE=provider.db provider tables.sql demo.sql; for https://host:port
// also RPC_TLS_CA, RPC_TLS_CERT, RPC_TLS_KEY (PEM files) and PROVIDER_CALLERS, the names in certificates that may call:
// those of survey-auth, and of you who try it.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"unicode/utf8"

	pb "example.com/surveys/gen/surveyauth/provider/v1"
	records "example.com/surveys/gen/surveyauth/v1"
	_ "github.com/mattn/go-sqlite3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	largest      = 1<<53 - 1 // of an id, and of an offset
	maxPageBytes = 3_500_000 // a message may have 4 MiB
	answerOf     = "SELECT answer_id, survey_id, respondent, end_time, details FROM answers WHERE survey_id = ?"
)

type provider struct {
	pb.UnimplementedSurveyProviderServer
	db *sql.DB
}

func (p *provider) GetProviderInfo(context.Context, *pb.GetProviderInfoRequest) (*pb.GetProviderInfoResponse, error) {
	answers := pb.ProviderCapability_PROVIDER_CAPABILITY_ANSWERS
	return &pb.GetProviderInfoResponse{Name: "Example in Go", Version: "1.0", Capabilities: []pb.ProviderCapability{answers}}, nil
}

func (p *provider) ListSurveys(ctx context.Context, request *pb.ListSurveysRequest) (*pb.ListSurveysResponse, error) {
	if err := check(request.Owner, bound{"offset", request.Offset, 0, largest}, bound{"limit", int64(request.Limit), 1, 100}); err != nil {
		return nil, err
	}
	answer, owner := &pb.ListSurveysResponse{}, request.Owner.ExternalId
	return answer, p.reading(ctx, func(tx *sql.Tx) error {
		if err := tx.QueryRow("SELECT count(*) FROM surveys WHERE owner = ?", owner).Scan(&answer.TotalSize); err != nil {
			return err
		}
		const page = "SELECT id, owner, hash, title, state FROM surveys WHERE owner = ? ORDER BY id LIMIT ? OFFSET ?"
		rows, err := tx.Query(page, owner, request.Limit, request.Offset)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			summary, owner := &records.SurveySummary{}, &pb.Owner{}
			if err := rows.Scan(&summary.Id, &owner.ExternalId, &summary.Hash, &summary.Title, &summary.State); err != nil {
				return err
			}
			answer.Surveys = append(answer.Surveys, &pb.OwnedSurveySummary{Survey: summary, Owner: owner})
		}
		return rows.Err()
	})
}

func (p *provider) GetSurvey(ctx context.Context, request *pb.GetSurveyRequest) (*pb.GetSurveyResponse, error) {
	if err := check(request.Owner, bound{"survey_id", request.SurveyId, 1, largest}); err != nil {
		return nil, err
	}
	answer := &pb.GetSurveyResponse{}
	return answer, p.reading(ctx, func(tx *sql.Tx) (err error) {
		answer.Survey, answer.Owner, err = surveyOf(tx, request.Owner, request.SurveyId)
		return err
	})
}

func (p *provider) ListAnswers(ctx context.Context, request *pb.ListAnswersRequest) (*pb.ListAnswersResponse, error) {
	if err := check(request.Owner, bound{"survey_id", request.SurveyId, 1, largest},
		bound{"after_answer_id", request.AfterAnswerId, 0, largest}, bound{"limit", int64(request.Limit), 1, 1000}); err != nil {
		return nil, err
	}
	since, until := seconds(request.Since, 0), seconds(request.Until, largest)
	answer := &pb.ListAnswersResponse{}
	return answer, p.reading(ctx, func(tx *sql.Tx) (err error) {
		if _, answer.Owner, err = surveyOf(tx, request.Owner, request.SurveyId); err != nil {
			return err
		}
		const count = "SELECT count(*) FROM answers WHERE survey_id = ? AND end_time >= ? AND end_time < ?"
		if err = tx.QueryRow(count, request.SurveyId, since, until).Scan(&answer.TotalSize); err != nil {
			return err
		}
		const page = answerOf + " AND end_time >= ? AND end_time < ? AND answer_id > ? ORDER BY answer_id LIMIT ?"
		rows, err := tx.Query(page, request.SurveyId, since, until, request.AfterAnswerId, request.Limit)
		if err != nil {
			return err
		}
		defer rows.Close()
		for bytes := 0; rows.Next(); {
			each, err := toAnswer(rows)
			if err != nil {
				return err
			}
			if bytes += proto.Size(each); bytes > maxPageBytes && len(answer.Answers) > 0 {
				return nil
			}
			answer.Answers = append(answer.Answers, each)
		}
		return rows.Err()
	})
}

func (p *provider) GetAnswer(ctx context.Context, request *pb.GetAnswerRequest) (*pb.GetAnswerResponse, error) {
	if err := check(request.Owner, bound{"survey_id", request.SurveyId, 1, largest}, bound{"answer_id", request.AnswerId, 1, largest}); err != nil {
		return nil, err
	}
	answer := &pb.GetAnswerResponse{}
	return answer, p.reading(ctx, func(tx *sql.Tx) (err error) {
		if _, answer.Owner, err = surveyOf(tx, request.Owner, request.SurveyId); err == nil {
			answer.Answer, err = toAnswer(tx.QueryRow(answerOf+" AND answer_id = ?", request.SurveyId, request.AnswerId))
		}
		return err
	})
}

// reading gives one snapshot for all that an answer says. Foreign and missing are one failure: nobody learns which ids exist.
func (p *provider) reading(ctx context.Context, read func(*sql.Tx) error) error {
	tx, err := p.db.BeginTx(ctx, nil)
	if err == nil {
		defer tx.Rollback()
		err = read(tx)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return status.Error(codes.NotFound, "the owner has no such survey or answer")
	}
	if err != nil && ctx.Err() == nil {
		log.Print(err)
		return status.Error(codes.Unavailable, "the database cannot be read")
	}
	return err
}

func surveyOf(tx *sql.Tx, of *pb.Owner, id int64) (*records.Survey, *pb.Owner, error) {
	survey, owner := &records.Survey{}, &pb.Owner{}
	var hash, title, details string
	var state records.SurveyState
	row := tx.QueryRow("SELECT owner, hash, title, state, details FROM surveys WHERE owner = ? AND id = ?", of.ExternalId, id)
	err := row.Scan(&owner.ExternalId, &hash, &title, &state, &details)
	if err == nil {
		err = protojson.Unmarshal([]byte(details), survey)
	}
	survey.Id, survey.Hash, survey.Title, survey.State = id, hash, title, state
	return survey, owner, err
}

func toAnswer(row interface{ Scan(...interface{}) error }) (*records.Answer, error) {
	answer := &records.Answer{}
	var id, surveyID, endTime int64
	var respondent, details string
	err := row.Scan(&id, &surveyID, &respondent, &endTime, &details)
	if err == nil {
		err = protojson.Unmarshal([]byte(details), answer)
	}
	answer.AnswerId, answer.SurveyId, answer.RespondentId, answer.EndTime = id, surveyID, respondent, &timestamppb.Timestamp{Seconds: endTime}
	return answer, err
}

// seconds is the first whole second at or after a time, as ours are whole.
func seconds(time *timestamppb.Timestamp, unset int64) int64 {
	if time == nil {
		return unset
	}
	if time.Nanos > 0 {
		return time.Seconds + 1
	}
	return time.Seconds
}

type bound struct {
	field              string
	value, least, most int64
}

func check(owner *pb.Owner, bounds ...bound) error {
	if owner == nil {
		return status.Error(codes.InvalidArgument, "owner must be set")
	}
	if utf8.RuneCountInString(owner.ExternalId) > 255 || utf8.RuneCountInString(owner.UserId) > 128 {
		return status.Error(codes.InvalidArgument, "owner: external_id has 255 characters at most, user_id 128")
	}
	for _, each := range bounds {
		if each.value < each.least || each.value > each.most {
			return status.Errorf(codes.InvalidArgument, "%s must be %d to %d", each.field, each.least, each.most)
		}
	}
	return nil
}

// onlyCallers lets in certificates with a name of PROVIDER_CALLERS; behind the socket its permissions are the guard.
func onlyCallers(ctx context.Context, request interface{}, _ *grpc.UnaryServerInfo, answer grpc.UnaryHandler) (interface{}, error) {
	from, _ := peer.FromContext(ctx)
	if over, isTLS := from.AuthInfo.(credentials.TLSInfo); isTLS {
		for _, name := range strings.Split(os.Getenv("PROVIDER_CALLERS"), ",") {
			if over.State.PeerCertificates[0].VerifyHostname(name) == nil {
				return answer(ctx, request)
			}
		}
		return nil, status.Error(codes.PermissionDenied, "the certificate has no name of PROVIDER_CALLERS")
	}
	return answer(ctx, request)
}

func listen(url string) (net.Listener, []grpc.ServerOption) {
	options := []grpc.ServerOption{grpc.UnaryInterceptor(onlyCallers)}
	if strings.HasPrefix(url, "unix:") {
		path := strings.TrimPrefix(url, "unix:")
		os.Remove(path)      // of a process that was killed
		syscall.Umask(0o177) // whoever may open the socket may read everything
		return must(net.Listen("unix", path)), options
	}
	if !strings.HasPrefix(url, "https://") {
		log.Fatal("PROVIDER_LISTEN must be unix:path or https://host:port")
	}
	certificate := must(tls.LoadX509KeyPair(os.Getenv("RPC_TLS_CERT"), os.Getenv("RPC_TLS_KEY")))
	callers := x509.NewCertPool()
	callers.AppendCertsFromPEM(must(os.ReadFile(os.Getenv("RPC_TLS_CA"))))
	both := &tls.Config{Certificates: []tls.Certificate{certificate}, ClientCAs: callers, ClientAuth: tls.RequireAndVerifyClientCert}
	return must(net.Listen("tcp", strings.TrimPrefix(url, "https://"))), append(options, grpc.Creds(credentials.NewTLS(both)))
}

func main() {
	db := must(sql.Open("sqlite3", os.Getenv("PROVIDER_DATABASE")))
	for _, script := range os.Args[1:] {
		must(db.Exec(string(must(os.ReadFile(script)))))
	}
	listener, options := listen(os.Getenv("PROVIDER_LISTEN"))
	server := grpc.NewServer(options...)
	pb.RegisterSurveyProviderServer(server, &provider{db: db})
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, os.Interrupt)
	go func() {
		<-ended
		server.GracefulStop()
	}()
	fmt.Println("answers at", os.Getenv("PROVIDER_LISTEN"))
	if err := server.Serve(listener); err != nil {
		log.Fatal(err)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
