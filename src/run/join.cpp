// SPDX-License-Identifier: Apache-2.0
#include "run/join.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/check.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "base/json_count.h"
#include "base/json_fault.h"
#include "base/json_limits.h"
#include "base/log.h"
#include "base/sentence.h"
#include "base/version.h"
#include "cluster/address.h"
#include "cluster/job_secret.h"
#include "run/overrides.h"
#include "run/run_inputs.h"

namespace tlt::run {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxRequestBytes = 1 << 20;
constexpr size_t kMostRequests = 256;  // that are looked at after a step
constexpr std::chrono::milliseconds kNap(50);
constexpr const char* kNew = ".new";
constexpr double kLookSeconds = 5;  // between two looks whether the run is still under way

std::string request_path(const std::string& folder, const std::string& id) {
  return folder + "/" + id + ".request";
}
std::string answer_path(const std::string& folder, const std::string& id) {
  return folder + "/" + id + ".answer";
}

// Processes with the same one reach each other on loopback.
std::string host_of_this_process() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 64> network{};
  const ssize_t length = readlink("/proc/self/ns/net", network.data(), network.size() - 1);
  return boot + " " +
         std::string(network.data(), static_cast<size_t>(std::max<ssize_t>(length, 0)));
}

// What a worker must have in common with the others.
nlohmann::json terms_of(const RunOptions& options) {
  nlohmann::json inputs = nlohmann::json::array();
  for (const cluster::Input& input : fingerprint_inputs(options))
    inputs.push_back({input.name, input.fingerprint});
  return {{"version", kVersion}, {"options", shared_options(options)}, {"inputs", inputs}};
}

std::string proof_of(const std::string& secret, const std::string& id,
                     const nlohmann::json& terms) {
  const std::string mac = hmac_sha256(cluster::derive_key(secret, "join"), id + terms.dump());
  std::string hex;
  for (const char byte : mac) hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return hex;
}

// Why a worker with other terms cannot join; empty: it can.
std::string difference_of(const nlohmann::json& theirs, const nlohmann::json& ours) {
  if (theirs.at("version") != ours.at("version"))
    return fmt::format("it runs tlt {} and the run tlt {}; install the same version",
                       theirs.at("version").get<std::string>(),
                       ours.at("version").get<std::string>());
  const std::string options = first_difference(theirs.at("options").get<std::string>(),
                                               ours.at("options").get<std::string>());
  if (!options.empty())
    return "it (here) and the run (there) have other options: " + options +
           "; give it the recipe, the overrides and the environment of the run";
  if (theirs.at("inputs") != ours.at("inputs"))
    return "it reads other files than the run; copy model and data of the run to its host";
  return "";
}

// Whether a process holds the lock of the file.
bool is_locked(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (descriptor < 0) return false;
  const bool is_free = ::flock(descriptor, LOCK_SH | LOCK_NB) == 0;
  ::close(descriptor);
  return !is_free;
}

// Only this user can read or replace it.
bool is_private(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         status.st_uid == ::geteuid() && (status.st_mode & 077) == 0;
}

void remove_quietly(const std::string& path) {
  std::error_code ignored;
  fs::remove(path, ignored);
}

// Answers that were not read, which may have the job secret.
void remove_answers(const std::string& folder) {
  std::vector<std::string> answers;
  std::error_code none;
  for (fs::directory_iterator it(folder, none), end; !none && it != end; it.increment(none)) {
    const std::string path = it->path().string();
    if (path.ends_with(".answer") || path.ends_with(std::string(".answer") + kNew))
      answers.push_back(path);
  }
  std::ranges::for_each(answers, remove_quietly);
}

// Bytes that are not UTF-8 are replaced.
std::string dumped(const nlohmann::json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

// The file appears as a whole (until then its name ends with kNew), locked as long as the result is
// open.
FileHandle write_private(const std::string& path, const std::string& text) {
  const std::string temporary = path + kNew;
  const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) throw_file_error(temporary, "create", errno);
  FileHandle file = FileHandle::duplicate_of(descriptor, temporary);
  ::close(descriptor);
  TLT_CHECK(file.try_lock(), temporary, " is locked by another process");
  file.write(text);
  if (::rename(temporary.c_str(), path.c_str()) != 0) throw_file_error(path, "create", errno);
  return file;
}

}  // namespace

struct JoinMeeting {
  std::string address, fault;  // a fault: they do not
  int port = 0, port_without_new = 0;
  std::vector<std::string> hosts;  // by rank; those of the new workers are last
  NLOHMANN_DEFINE_TYPE_INTRUSIVE(JoinMeeting, address, fault, port, port_without_new, hosts)

  // Of a rank among the first `size` workers, without secret and socket.
  cluster::Launch launch_of(size_t rank, size_t size) const {
    cluster::Launch launch;
    launch.rank = static_cast<int>(rank);
    launch.world_size = static_cast<int>(size);
    launch.local_rank =
        static_cast<int>(std::count(hosts.begin(), hosts.begin() + rank, hosts[rank]));
    launch.local_world_size =
        static_cast<int>(std::count(hosts.begin(), hosts.begin() + size, hosts[rank]));
    launch.master_address = launch.one_host() ? "127.0.0.1" : address;
    launch.master_port = size == hosts.size() ? port : port_without_new;
    return launch;
  }
};

JoinRequests::JoinRequests(const RunOptions& options, const RunContext& context,
                           const std::string& folder)
    : options_(options),
      context_(context),
      folder_(folder + "/join"),
      secret_(context.launch.job_secret) {
  // One worker alone has no secret yet.
  if (secret_.empty() && context.launch.world_size == 1) secret_ = cluster::random_hex();
  if (context.is_first()) remove_answers(folder_);
}

JoinRequests::~JoinRequests() {
  close_sockets();
  if (continues_ || !context_.is_first()) return;
  try {
    for (const Request& request : read_requests()) refuse(request.id, "the run has ended");
  } catch (const std::exception& error) {
    log_warning("workers that wait to join: {}", error.what());
  }
}

void JoinRequests::refuse(const std::string& id, const std::string& why) const {
  log_warning("a worker that asked to join is refused: {}", why);
  reply(id, dumped(nlohmann::json{{"refused", why}}));
}

// A worker that gets none, as the disk is full, asks again or does not come.
void JoinRequests::reply(const std::string& id, const std::string& text) const {
  const std::string path = answer_path(folder_, id);
  try {
    remove_quietly(path + kNew);  // of a process that was killed
    write_private(path, text);
    remove_quietly(request_path(folder_, id));
  } catch (const std::exception& error) {
    log_warning("a worker that asked to join gets no answer: {}", error.what());
  }
}

// On rank 0. Those of workers that are gone are removed.
std::vector<JoinRequests::Request> JoinRequests::read_requests() const {
  std::vector<std::string> ids;
  std::error_code none;
  for (fs::directory_iterator it(folder_, none), end; !none && it != end; it.increment(none))
    if (it->path().extension() == ".request" && ids.size() < kMostRequests)
      ids.push_back(it->path().stem().string());
  std::ranges::sort(ids);
  std::vector<Request> requests;
  nlohmann::json ours;
  for (const std::string& id : ids) {
    const std::string path = request_path(folder_, id);
    if (!is_private(path) || !is_locked(path)) {
      log_warning("{}: no worker of this user waits there; removed", path);
      remove_quietly(path);
      continue;
    }
    std::string fault;
    try {
      const nlohmann::json request = parse_limited_json(read_file(path, kMaxRequestBytes));
      const nlohmann::json& terms = request.at("terms");
      if (ours.is_null()) ours = terms_of(options_);
      fault = difference_of(terms, ours);
      const auto host = request.at("host").get<std::string>();
      const bool is_here = host == host_of_this_process();
      if (fault.empty() && !is_here &&
          !equal_in_constant_time(request.at("proof").get<std::string>(),
                                  proof_of(secret_, id, terms)))
        fault =
            "it is on another host and has not the run's TLT_JOB_SECRET; give every worker the "
            "same one";
      if (fault.empty()) requests.push_back({id, host});
    } catch (const std::exception& error) {
      fault = fmt::format("its request cannot be read: {}", json_fault(error));
    }
    if (!fault.empty()) refuse(id, fault);
  }
  return requests;
}

// On rank 0.
JoinMeeting JoinRequests::plan(std::vector<std::string> hosts,
                               const std::vector<Request>& requests) const {
  JoinMeeting meeting;
  meeting.address = context_.launch.master_address;
  meeting.hosts = std::move(hosts);
  for (const Request& request : requests) meeting.hosts.push_back(request.host);
  const auto workers = static_cast<int64_t>(meeting.hosts.size());
  const int64_t group = options_.rollout.tensor_model_parallel_size;
  if (workers % group != 0)
    meeting.fault = fmt::format(
        "the run would have {} workers, and rollout.tensor_model_parallel_size={} takes whole "
        "groups; start as many workers at the same time as fill one",
        workers, group);
  else if (options_.trainer.save_freq == 0)
    meeting.fault = "trainer.save_freq=0 keeps no checkpoint, from which it would continue";
  else if (!meeting.launch_of(0, meeting.hosts.size()).one_host() &&
           cluster::names_loopback(meeting.address))
    meeting.fault =
        "it is on another host, and the run listens on loopback only; start the run with RANK, "
        "WORLD_SIZE, MASTER_ADDR and MASTER_PORT (docs/launching.md)";
  return meeting;
}

// On rank 0: listens where the others are to connect.
void JoinRequests::listen(JoinMeeting& meeting, size_t joining) {
  const size_t all = meeting.hosts.size(), old = all - joining;
  const auto listen_as = [&](size_t workers) {
    const std::string own = cluster::own_address(meeting.launch_of(0, workers));
    return cluster::listen_in(own, context_.launch.ports);
  };
  close_sockets();
  with_new_ = listen_as(all);
  meeting.port = with_new_.port;
  if (old == 1) return;
  without_new_ = listen_as(old);
  meeting.port_without_new = without_new_.port;
}

void JoinRequests::close_sockets() {
  for (cluster::Listener* socket : {&with_new_, &without_new_}) {
    if (socket->fd >= 0) ::close(socket->fd);
    *socket = {};
  }
}

// On rank 0.
void JoinRequests::answer(const JoinMeeting& meeting, const std::vector<Request>& requests) const {
  const size_t old = meeting.hosts.size() - requests.size();
  for (size_t i = 0; i < requests.size(); ++i) {
    nlohmann::json text = {{"meeting", meeting}, {"rank", old + i}};
    if (requests[i].host == meeting.hosts[0]) text["secret"] = secret_;
    reply(requests[i].id, dumped(text));
  }
}

// The present workers and those that join, the same on every rank.
JoinMeeting JoinRequests::agree(const std::vector<Request>& requests, size_t joining) {
  cluster::Comm& comm = *context_.comm;
  JoinMeeting meeting;
  size_t present = 0;  // comm.size() may change on some workers alone, at the end of a collective
  do {                 // again if a worker was lost meanwhile
    std::vector<std::string> hosts = comm.all_gather_bytes(host_of_this_process());
    if (context_.is_first()) {
      meeting = plan(std::move(hosts), requests);
      try {
        if (meeting.fault.empty()) listen(meeting, joining);
      } catch (const std::exception& error) {  // no free port: the run is not to end by a request
        close_sockets();
        meeting.fault = fmt::format("the run cannot listen for it: {}", error.what());
      }
    }
    const nlohmann::json mine = meeting;
    const std::vector<std::string> all = comm.all_gather_bytes(dumped(mine));
    nlohmann::json::parse(all.front()).get_to(meeting);
    present = all.size();
  } while (meeting.hosts.size() != present + joining);
  return meeting;
}

std::optional<NextLaunch> JoinRequests::accept() {
  std::vector<Request> requests;
  if (context_.is_first()) requests = read_requests();
  at::Tensor count = at::tensor({static_cast<int64_t>(requests.size())}, at::kLong);
  context_.comm->all_reduce_max(count);
  const auto joining = static_cast<size_t>(count.item<int64_t>());
  if (joining == 0) return std::nullopt;
  const JoinMeeting meeting = agree(requests, joining);
  if (!meeting.fault.empty()) {
    for (const Request& request : requests) refuse(request.id, meeting.fault);
    return std::nullopt;
  }
  const auto rank = static_cast<size_t>(context_.comm->rank());
  NextLaunch next{.with_new = meeting.launch_of(rank, meeting.hosts.size()),
                  .without_new = meeting.launch_of(rank, meeting.hosts.size() - joining)};
  next.with_new.listen_fd = std::exchange(with_new_.fd, -1);
  next.without_new.listen_fd = std::exchange(without_new_.fd, -1);
  for (cluster::Launch* launch : {&next.with_new, &next.without_new}) {
    launch->meets_again = true;
    launch->job_secret = secret_;
    launch->ports = context_.launch.ports;
    launch->supervisor_pid = context_.launch.supervisor_pid;
  }
  if (context_.is_first()) answer(meeting, requests);
  continues_ = true;
  return next;
}

namespace {

// A request in the run folder, for as long as this process waits.
class Ticket {
 public:
  Ticket(const std::string& folder, const nlohmann::json& terms, const std::string& secret)
      : id_(cluster::random_hex().substr(0, 16)),
        path_(request_path(folder, id_)),
        answer_(answer_path(folder, id_)) {
    make_folder(folder);
    const nlohmann::json request = {{"terms", terms},
                                    {"host", host_of_this_process()},
                                    {"proof", proof_of(secret, id_, terms)}};
    file_ = write_private(path_, request.dump());
  }
  ~Ticket() {
    remove_quietly(path_);
    remove_quietly(answer_);
  }
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;

  // Null: none yet.
  nlohmann::json answer() const {
    if (!fs::exists(answer_)) return nullptr;
    TLT_CHECK_INPUT(is_private(answer_), answer_, ": is not a file of this user alone; ", kRepair);
    nlohmann::json answer = parse_limited_json(read_file(answer_, kMaxRequestBytes));
    TLT_CHECK_INPUT(answer.is_object(), answer_, ": not an answer; ", kRepair);
    return answer;
  }
  // False: the folder was moved aside, with the request.
  bool is_there() const { return fs::exists(path_); }

 private:
  static constexpr const char* kRepair = "give the same command again";
  const std::string id_, path_, answer_;
  FileHandle file_;  // locked
};

// InputError: the run refuses this worker.
cluster::Launch launch_of(const nlohmann::json& answer, const std::string& secret) {
  TLT_CHECK_INPUT(!answer.contains("refused"), "the run does not let this worker join: ",
                  one_sentence(answer.value("refused", "")));
  const auto meeting = answer.at("meeting").get<JoinMeeting>();
  const auto rank = json_count<size_t>(answer, "rank");
  TLT_CHECK_INPUT(rank > 0 && rank < meeting.hosts.size(), "rank ", rank, " of ",
                  meeting.hosts.size(), " workers");
  cluster::Launch launch = meeting.launch_of(rank, meeting.hosts.size());
  launch.job_secret = answer.value("secret", secret);
  launch.ports = cluster::read_port_range(cluster::process_environment());
  return launch;
}

// Whether a process writes into the run folder.
bool is_under_way(const std::string& folder) { return is_locked(folder + "/.lock"); }

}  // namespace

std::optional<cluster::Launch> join_run(const RunOptions& options, const cluster::Launch& launch) {
  TLT_CHECK_INPUT(launch.world_size == 1, "--join starts one worker, but the launcher started ",
                  launch.world_size, "; start it without a launcher");
  const std::string run = options.trainer.folder(), folder = run + "/join";
  const std::string secret = cluster::read_job_secret(cluster::process_environment());
  const nlohmann::json terms = terms_of(options);
  auto ticket = std::make_unique<Ticket>(folder, terms, secret);
  log_info("waiting to join the run in {}, which looks after each step; Ctrl-C ends this", run);
  Stopwatch since_look, without_run;
  for (; !interrupted(); std::this_thread::sleep_for(kNap)) {
    const bool was_there = ticket->is_there();
    if (const nlohmann::json answer = ticket->answer(); !answer.is_null())
      return launch_of(answer, secret);
    if (!was_there) ticket = std::make_unique<Ticket>(folder, terms, secret);
    if (since_look.seconds() < kLookSeconds) continue;
    since_look.restart();
    if (is_under_way(run)) without_run.restart();
    TLT_CHECK_INPUT(without_run.seconds() < options.trainer.timeout_seconds, run,
                    ": no run is under way there; start it with the same command, without --join");
  }
  return std::nullopt;
}

RunOptions resumed_options(const RunOptions& options) {
  RunOptions resumed = options;
  resumed.trainer.resume_mode = "auto";
  resumed.overrides =
      apply_overrides(collect_options(resumed), resumed.trainer.folder(), {}, /*hint=*/nullptr);
  return resumed;
}

}  // namespace tlt::run
