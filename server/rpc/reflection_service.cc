#include "server/rpc/reflection_service.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <set>
#include <string>
#include <utility>

#include "server/intake/quoted.h"
#include "server/rpc/grpc_status.h"
#include "slotwise/status.h"
#include "wire/hand_over.h"

namespace slotwise {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;
using grpc::reflection::v1alpha::FileDescriptorResponse;
using grpc::reflection::v1alpha::ServerReflectionRequest;
using grpc::reflection::v1alpha::ServerReflectionResponse;

namespace {

void SayNotFound(ServerReflectionResponse& response, const std::string& what) {
  response.mutable_error_response()->set_error_code(grpc::StatusCode::NOT_FOUND);
  response.mutable_error_response()->set_error_message("the server has no " + what);
}

// Adds a file and those that it imports, each once.
void Add(const FileDescriptor& file, std::set<const FileDescriptor*>& added, FileDescriptorResponse& files) {
  if (!added.insert(&file).second) return;
  google::protobuf::FileDescriptorProto proto;
  file.CopyTo(&proto);
  files.add_file_descriptor_proto(proto.SerializeAsString());
  for (int i = 0; i < file.dependency_count(); ++i) Add(*file.dependency(i), added, files);
}

void SayFile(const FileDescriptor* file, const std::string& what, ServerReflectionResponse& response) {
  if (file == nullptr) return SayNotFound(response, what);
  std::set<const FileDescriptor*> added;
  Add(*file, added, *response.mutable_file_descriptor_response());
}

ServerReflectionResponse Answer(const ServerReflectionRequest& request,
                                const std::set<std::string>& services) {
  ServerReflectionResponse response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  switch (request.message_request_case()) {
    case ServerReflectionRequest::kListServices:
      for (const std::string& name : services)
        response.mutable_list_services_response()->add_service()->set_name(name);
      break;
    case ServerReflectionRequest::kFileByFilename: {
      const std::string& name = request.file_by_filename();
      SayFile(pool.FindFileByName(name), "file " + Quoted(name), response);
      break;
    }
    case ServerReflectionRequest::kFileContainingSymbol: {
      const std::string& name = request.file_containing_symbol();
      SayFile(pool.FindFileContainingSymbol(name), "symbol " + Quoted(name), response);
      break;
    }
    case ServerReflectionRequest::kFileContainingExtension:
    case ServerReflectionRequest::kAllExtensionNumbersOfType:
      SayNotFound(response, "extensions");
      break;
    case ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      response.mutable_error_response()->set_error_code(grpc::StatusCode::INVALID_ARGUMENT);
      response.mutable_error_response()->set_error_message("the request asks for nothing");
      break;
  }
  return response;
}

}  // namespace

// One stream. It reads a question after the caller has taken the answer to the last one.
class ReflectionService::Stream final
    : public grpc::ServerBidiReactor<ServerReflectionRequest, ServerReflectionResponse> {
 public:
  explicit Stream(ReflectionService& service)
      : service_(service), has_place_(service.streams_.fetch_add(1) < kMostStreams) {
    if (has_place_) {
      Read();
    } else {
      --service_.streams_;
      Finish(ToGrpc(ResourceExhausted("the server has " + std::to_string(kMostStreams) +
                                      " streams of reflection, the most at once")));
    }
  }

 private:
  void Read() {
    HandOver(this);
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    TakeOver(this);
    if (!ok) return Finish(grpc::Status::OK);  // the caller has no more questions, or has gone
    if (request_.ByteSizeLong() > kMostNameBytes) {
      return Finish(ToGrpc(InvalidArgument("a question of reflection has at most " +
                                           std::to_string(kMostNameBytes) + " bytes")));
    }
    response_ = Answer(request_, service_.services_);
    HandOver(this);
    StartWrite(&response_);
  }

  void OnWriteDone(bool ok) override {
    TakeOver(this);
    ok ? Read() : Finish(grpc::Status::CANCELLED);
  }

  void OnDone() override {
    TakeOver(this);
    if (has_place_) --service_.streams_;
    delete this;
  }

  ReflectionService& service_;
  const bool has_place_;
  ServerReflectionRequest request_;
  ServerReflectionResponse response_;
};

ReflectionService::ReflectionService(std::set<std::string> services) : services_(std::move(services)) {
  services_.insert(grpc::reflection::v1alpha::ServerReflection::service_full_name());
}

grpc::ServerBidiReactor<ServerReflectionRequest, ServerReflectionResponse>*
ReflectionService::ServerReflectionInfo(grpc::CallbackServerContext* /*context*/) {
  return new Stream(*this);  // the stream deletes itself when gRPC is done with it
}

}  // namespace slotwise
