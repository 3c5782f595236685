// Verifies an access token and lists that user's surveys: Java with grpc-java.
//
// Stubs, with protoc and protoc-gen-grpc-java (Debian: grpc_java_plugin) on the PATH; DIR is your program's folder. Managed mode puts each
// message into a class of its own in the package com.surveyauth.v1:
//   npx buf generate -o DIR --path proto/surveyauth/v1 --path proto/buf --template '{"version":"v2","managed":{"enabled":true},
//     "plugins":[{"protoc_builtin":"java","out":"stubs"},{"local":"grpc_java_plugin","out":"stubs"}]}'
// Libraries: io.grpc grpc-netty, grpc-protobuf, grpc-stub; javax.annotation-api, whose @Generated the stubs of an old grpc-java bear, and
// which Java has not had since 11. An old netty offers TLS 1.3 only when asked, as here, and the services take no other. (Debian:
// libgrpc-java, libprotobuf-java, libgeronimo-annotation-1.3-spec-java; its netty has TLS with ALPN only by libnetty-tcnative-jni, whose
// library it looks for as libnetty_tcnative.so in java.library.path.)
// Retry: both calls only read, so UNAVAILABLE may be retried, after a pause; other failures would only repeat.
// Deadline: 4.5 s, as the gateway's; without one a call may take the server's maximum, 30 s.
// Run: TOKEN_SERVICE_URL=http://127.0.0.1:9090 SURVEY_SERVICE_URL=http://127.0.0.1:9090 APPID=… ACCESS_TOKEN=… OPENID=… java Client;
// for https://host:port also RPC_TLS_CA, RPC_TLS_CERT, RPC_TLS_KEY (PEM files, the key in PKCS 8); for unix:path also
// netty-transport-native-epoll for Linux, whose native library Debian does not have.
import com.surveyauth.v1.*;
import io.grpc.*;
import io.grpc.netty.GrpcSslContexts;
import io.grpc.netty.NettyChannelBuilder;
import io.netty.channel.epoll.EpollDomainSocketChannel;
import io.netty.channel.epoll.EpollEventLoopGroup;
import io.netty.channel.unix.DomainSocketAddress;
import java.io.File;
import java.util.concurrent.TimeUnit;

public class Client {
  static ManagedChannel channel(String url) throws Exception {
    if (url.startsWith("unix:")) {
      var socket = NettyChannelBuilder.forAddress(new DomainSocketAddress(url.substring("unix:".length())));
      var events = new EpollEventLoopGroup(1);
      return socket.channelType(EpollDomainSocketChannel.class).eventLoopGroup(events).usePlaintext().build();
    }
    var target = NettyChannelBuilder.forTarget(url.replaceFirst("^https?://", ""));
    if (url.startsWith("http://")) return target.usePlaintext().build(); // loopback
    var tls = GrpcSslContexts.forClient().protocols("TLSv1.3").trustManager(pem("CA")).keyManager(pem("CERT"), pem("KEY"));
    return target.sslContext(tls.build()).build();
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
