// Verifies an access token and lists that user's surveys: Java with grpc-java.
//
// Stubs, with protoc-gen-grpc-java on the PATH: npx buf generate --template with managed mode, which puts each message
// into a class of its own in the package com.surveyauth.v1:
//   {"version":"v2","managed":{"enabled":true},"plugins":[{"protoc_builtin":"java","out":"stubs"},
//    {"local":"protoc-gen-grpc-java","out":"stubs"}]}
// Libraries: io.grpc grpc-netty-shaded, grpc-protobuf, grpc-stub.
// Retry: both calls only read, so UNAVAILABLE may be retried, after a pause; other failures would only repeat.
// Deadline: 4.5 s, as the gateway's; without one a call may take the server's maximum, 30 s.
// Run with TOKEN_SERVICE_URL and SURVEY_SERVICE_URL (host:port), RPC_TLS_CA, RPC_TLS_CERT, RPC_TLS_KEY (PEM files, the
// key in PKCS 8), APPID, ACCESS_TOKEN, OPENID. A Unix socket takes NettyChannelBuilder with an epoll event loop.
import com.surveyauth.v1.*;
import io.grpc.*;
import java.io.File;
import java.util.concurrent.TimeUnit;

public class Client {
  static ManagedChannel channel(String target) throws Exception {
    var tls = TlsChannelCredentials.newBuilder().trustManager(pem("CA")).keyManager(pem("CERT"), pem("KEY")).build();
    return Grpc.newChannelBuilder(target.replace("https://", ""), tls).build();
  }

  static File pem(String name) {
    return new File(System.getenv("RPC_TLS_" + name));
  }

  public static void main(String[] args) throws Exception {
    String appid = System.getenv("APPID"), accessToken = System.getenv("ACCESS_TOKEN"), openid = System.getenv("OPENID");
    ManagedChannel tokens = channel(System.getenv("TOKEN_SERVICE_URL"));
    ManagedChannel surveys = channel(System.getenv("SURVEY_SERVICE_URL"));
    try {
      var token = TokenServiceGrpc.newBlockingStub(tokens).withDeadlineAfter(4500, TimeUnit.MILLISECONDS).verifyAccessToken(
          VerifyAccessTokenRequest.newBuilder().setAppid(appid).setAccessToken(accessToken).setOpenid(openid).build());
      System.out.println(token.getOpenid() + " " + token.getScope());
      var request = ListSurveysRequest.newBuilder().setAppid(appid).setAccessToken(accessToken).setOpenid(openid);
      var answer = SurveyServiceGrpc.newBlockingStub(surveys).withDeadlineAfter(4500, TimeUnit.MILLISECONDS).listSurveys(
          request.setPageSize(100).build());
      for (var survey : answer.getSurveysList()) System.out.println(survey.getId() + " " + survey.getTitle());
    } catch (StatusRuntimeException error) { // the reason: io.grpc.protobuf.StatusProto.fromThrowable(error), ErrorInfo
      System.err.println(error.getStatus());
      System.exit(1);
    } finally {
      tokens.shutdown();
      surveys.shutdown();
    }
  }
}
