// SPDX-License-Identifier: Apache-2.0
#include "cluster/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/check.h"
#include "cluster/address.h"

namespace tlt::cluster {
namespace {

using ::testing::HasSubstr;

struct Row {
  std::string name;
  Environment environment;
  Launch want;
};

const std::vector<Row>& good_rows() {
  static const std::vector<Row> rows = {
      {"nothing is a solo run", {{"HOME", "/root"}, {"MASTER_ADDR", "host"}}, {}},
      {"torchrun on one host",
       {{"RANK", "1"},
        {"WORLD_SIZE", "2"},
        {"LOCAL_RANK", "1"},
        {"LOCAL_WORLD_SIZE", "2"},
        {"MASTER_ADDR", "127.0.0.1"},
        {"MASTER_PORT", "4711"}},
       {.rank = 1, .world_size = 2, .local_rank = 1, .local_world_size = 2, .master_port = 4711}},
      {"torchrun on two hosts, its agent serves the store",
       {{"RANK", "5"},
        {"WORLD_SIZE", "8"},
        {"LOCAL_RANK", "1"},
        {"LOCAL_WORLD_SIZE", "4"},
        {"MASTER_ADDR", "node7"},
        {"MASTER_PORT", "4711"},
        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
        {"TORCHELASTIC_RESTART_COUNT", "2"},
        {"TORCHELASTIC_RUN_ID", "x"}},
       {.rank = 5,
        .world_size = 8,
        .local_rank = 1,
        .local_world_size = 4,
        .master_address = "node7",
        .master_port = 4711,
        .launcher_serves_store = true,
        .store_prefix = "attempt_2"}},
      {"rank and address only: one worker per host",
       {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "10.0.0.1"}},
       {.rank = 1,
        .world_size = 2,
        .local_rank = 0,
        .local_world_size = 1,
        .master_address = "10.0.0.1",
        .master_port = 29500}},
      {"rank only: all workers here",
       {{"RANK", "1"}, {"WORLD_SIZE", "2"}},
       {.rank = 1, .world_size = 2, .local_rank = 1, .local_world_size = 2, .master_port = 29500}},
      {"our own socket",
       {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "4711"}, {"TLT_LISTEN_FD", "9"}},
       {.rank = 0,
        .world_size = 2,
        .local_rank = 0,
        .local_world_size = 2,
        .master_port = 4711,
        .listen_fd = 9}},
      {"Open MPI",
       {{"OMPI_COMM_WORLD_RANK", "3"},
        {"OMPI_COMM_WORLD_SIZE", "4"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
        {"MASTER_ADDR", "10.0.0.1"},
        {"MASTER_PORT", "4711"}},
       {.rank = 3,
        .world_size = 4,
        .local_rank = 1,
        .local_world_size = 2,
        .master_address = "10.0.0.1",
        .master_port = 4711}},
      {"Open MPI on one host without a port",
       {{"OMPI_COMM_WORLD_RANK", "0"},
        {"OMPI_COMM_WORLD_SIZE", "2"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
       {.rank = 0, .world_size = 2, .local_rank = 0, .local_world_size = 2, .master_port = 29500}},
      {"a wrapper that repeats MPI's rank",
       {{"RANK", "1"},
        {"WORLD_SIZE", "2"},
        {"OMPI_COMM_WORLD_RANK", "1"},
        {"OMPI_COMM_WORLD_SIZE", "2"}},
       {.rank = 1, .world_size = 2, .local_rank = 1, .local_world_size = 2, .master_port = 29500}},
      {"MPICH",
       {{"PMI_RANK", "1"},
        {"PMI_SIZE", "2"},
        {"MPI_LOCALRANKID", "1"},
        {"MPI_LOCALNRANKS", "2"},
        {"MASTER_PORT", "4711"}},
       {.rank = 1, .world_size = 2, .local_rank = 1, .local_world_size = 2, .master_port = 4711}},
      {"srun on several hosts",
       {{"SLURM_PROCID", "5"},
        {"SLURM_NTASKS", "6"},
        {"SLURM_LOCALID", "1"},
        {"SLURM_NODEID", "2"},
        {"SLURM_STEP_NODELIST", "gpu[07-08,11]"},
        {"SLURM_STEP_NUM_NODES", "3"},
        {"SLURM_STEP_TASKS_PER_NODE", "2(x3)"},
        {"MASTER_PORT", "4711"}},
       {.rank = 5,
        .world_size = 6,
        .local_rank = 1,
        .local_world_size = 2,
        .master_address = "gpu07",
        .master_port = 4711}},
      {"srun on one host",
       {{"SLURM_PROCID", "1"},
        {"SLURM_NTASKS", "2"},
        {"SLURM_LOCALID", "1"},
        {"SLURM_STEP_NODELIST", "gpu07"},
        {"MASTER_PORT", "4711"}},
       {.rank = 1, .world_size = 2, .local_rank = 1, .local_world_size = 2, .master_port = 4711}},
      {"srun with MASTER_ADDR set by the user",
       {{"SLURM_PROCID", "0"},
        {"SLURM_NTASKS", "2"},
        {"SLURM_LOCALID", "0"},
        {"MASTER_ADDR", "10.0.0.1"},
        {"SLURM_NTASKS_PER_NODE", "1"}},
       {.rank = 0,
        .world_size = 2,
        .local_rank = 0,
        .local_world_size = 1,
        .master_address = "10.0.0.1",
        .master_port = 29500}},
      {"a batch script of Slurm is not a task of srun",
       {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"}},
       {}},
      {"torchrun inside srun",
       {{"RANK", "0"},
        {"WORLD_SIZE", "1"},
        {"LOCAL_RANK", "0"},
        {"LOCAL_WORLD_SIZE", "1"},
        {"SLURM_PROCID", "1"},
        {"SLURM_NTASKS", "2"}},
       {.master_port = 29500}},
  };
  return rows;
}

TEST(LaunchTest, EveryLauncherIsRecognized) {
  for (const Row& row : good_rows()) {
    SCOPED_TRACE(row.name);
    const Launch got = read_launch(row.environment);
    EXPECT_EQ(got.rank, row.want.rank);
    EXPECT_EQ(got.world_size, row.want.world_size);
    EXPECT_EQ(got.local_rank, row.want.local_rank);
    EXPECT_EQ(got.local_world_size, row.want.local_world_size);
    EXPECT_EQ(got.master_address, row.want.master_address);
    EXPECT_EQ(got.master_port, row.want.master_port);
    EXPECT_EQ(got.listen_fd, row.want.listen_fd);
    EXPECT_EQ(got.launcher_serves_store, row.want.launcher_serves_store);
    EXPECT_EQ(got.store_prefix, row.want.store_prefix);
  }
}

TEST(LaunchTest, InvalidOrInconsistentValuesAreRejected) {
  const std::vector<std::pair<Environment, std::string>> rows = {
      {{{"RANK", "0"}}, "WORLD_SIZE is not set but other variables of torchrun are"},
      {{{"WORLD_SIZE", "2"}}, "RANK is not set"},
      {{{"RANK", "one"}, {"WORLD_SIZE", "2"}}, "RANK='one' (torchrun) is not an integer"},
      {{{"RANK", "1x"}, {"WORLD_SIZE", "2"}}, "RANK='1x'"},
      {{{"RANK", ""}, {"WORLD_SIZE", "2"}}, "RANK=''"},
      {{{"RANK", "-1"}, {"WORLD_SIZE", "2"}}, "RANK='-1'"},
      {{{"RANK", "99999999999"}, {"WORLD_SIZE", "2"}}, "RANK='99999999999'"},
      {{{"RANK", "2"}, {"WORLD_SIZE", "2"}},
       "rank 2 (torchrun) is not below the number of workers 2"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "0"}}, "the number of workers is 0"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "3"}},
       "the number of workers on this host is 3"},
      {{{"RANK", "1"},
        {"WORLD_SIZE", "2"},
        {"LOCAL_WORLD_SIZE", "1"},
        {"LOCAL_RANK", "1"},
        {"MASTER_ADDR", "a"}},
       "local rank 1"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}},
       "local rank 1 (torchrun) is above the rank 0"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}},
       "MASTER_ADDR is not set"},
      {{{"RANK", "0"},
        {"WORLD_SIZE", "2"},
        {"LOCAL_RANK", "0"},
        {"LOCAL_WORLD_SIZE", "1"},
        {"MASTER_ADDR", "localhost"}},
       "is this host, but only 1 of 2"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "0"}}, "MASTER_PORT=0"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}}, "MASTER_PORT=70000"},
      {{{"RANK", "0"},
        {"WORLD_SIZE", "1"},
        {"OMPI_COMM_WORLD_RANK", "1"},
        {"OMPI_COMM_WORLD_SIZE", "2"}},
       "contradict OMPI_COMM_WORLD_RANK=1"},
      {{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}},
       "OMPI_COMM_WORLD_LOCAL_RANK is not set but other variables of mpirun are"},
      {{{"SLURM_PROCID", "1"}, {"SLURM_LOCALID", "0"}},
       "SLURM_NTASKS is not set but other variables of srun are"},
      {{{"SLURM_PROCID", "1"},
        {"SLURM_LOCALID", "0"},
        {"SLURM_NTASKS", "2"},
        {"SLURM_STEP_NODELIST", "gpu[1-2"}},
       "is not a node list"},
      {{{"SLURM_PROCID", "1"},
        {"SLURM_LOCALID", "0"},
        {"SLURM_NTASKS", "2"},
        {"SLURM_STEP_NODELIST", "a,b"},
        {"SLURM_STEP_TASKS_PER_NODE", "x"}},
       "has no tasks for SLURM_NODEID 0"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"TLT_JOB_SECRET", "fifteen letters"}},
       "TLT_JOB_SECRET has 15 characters; give every worker the same 16 or more random ones"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"TLT_JOB_SECRET", ""}},
       "TLT_JOB_SECRET has 0 characters"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"TLT_PORT_RANGE", "30000"}},
       "TLT_PORT_RANGE='30000' is not BEGIN-END"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"TLT_PORT_RANGE", "30009-30000"}},
       "TLT_PORT_RANGE='30009-30000' is not BEGIN-END"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"TLT_PORT_RANGE", "65000-65536"}},
       "with ports from 1 to 65535"},
  };
  for (const auto& [environment, want] : rows) {
    try {
      read_launch(environment);
      ADD_FAILURE() << "no error: " << want;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr(want));
    }
  }
}

TEST(LaunchTest, PortDependsOnTheJob) {
  const auto port = [](const std::string& rank, const std::string& job) {
    return read_launch({{"SLURM_PROCID", rank},
                        {"SLURM_NTASKS", "2"},
                        {"SLURM_LOCALID", rank},
                        {"SLURM_STEP_NODELIST", "a"},
                        {"SLURM_JOB_ID", job}})
        .master_port;
  };
  EXPECT_EQ(port("0", "77"), port("1", "77"));
  EXPECT_NE(port("0", "77"), port("0", "78"));
  EXPECT_GE(port("0", "77"), 20000);
  EXPECT_LT(port("0", "77"), 30000);
}

TEST(LaunchTest, DerivedPortIsInTheRange) {
  for (const char* job : {"77", "78", "79"}) {
    const int port = read_launch({{"SLURM_PROCID", "0"},
                                  {"SLURM_NTASKS", "2"},
                                  {"SLURM_LOCALID", "0"},
                                  {"SLURM_STEP_NODELIST", "a"},
                                  {"SLURM_JOB_ID", job},
                                  {"TLT_PORT_RANGE", "4000-4002"}})
                         .master_port;
    EXPECT_GE(port, 4000) << job;
    EXPECT_LE(port, 4002) << job;
  }
}

TEST(LaunchTest, EnvironmentRoundTrips) {
  const Launch launch{.rank = 1,
                      .world_size = 3,
                      .local_rank = 1,
                      .local_world_size = 3,
                      .master_port = 4711,
                      .listen_fd = 5,
                      .job_secret = "sixteen letters or more",
                      .ports = {.begin = 4712, .end = 4799}};
  const Launch again = read_launch(launch_environment(launch));
  EXPECT_EQ(launch_environment(again), launch_environment(launch));
  EXPECT_EQ(again.rank, 1);
  EXPECT_EQ(again.job_secret, launch.job_secret);
  EXPECT_EQ(again.ports.begin, 4712);
  EXPECT_EQ(again.ports.end, 4799);
}

TEST(LaunchTest, SlurmListsAreParsed) {
  EXPECT_EQ(first_host("node"), "node");
  EXPECT_EQ(first_host("node-3.cluster,other"), "node-3.cluster");
  EXPECT_EQ(first_host("gpu[007-009]"), "gpu007");
  EXPECT_EQ(first_host("gpu[3,5-7],cpu1"), "gpu3");
  EXPECT_EQ(first_host("rack[1-2]n[03,05]x"), "rack1n03x");
  EXPECT_EQ(tasks_of_node("4", 0), 4);
  EXPECT_EQ(tasks_of_node("4(x2),1", 1), 4);
  EXPECT_EQ(tasks_of_node("4(x2),1", 2), 1);
  EXPECT_EQ(tasks_of_node("4(x2),1", 3), -1);
  for (const char* text : {"", "x", "4(x", "4(x2", "4(xx)", "(x2)"})
    EXPECT_EQ(tasks_of_node(text, 0), -1) << text;
}

TEST(AddressTest, OneHostListensOnLoopback) {
  EXPECT_EQ(own_address({}), "127.0.0.1");
  EXPECT_EQ(own_address({.world_size = 2, .local_world_size = 2, .master_address = "some.host"}),
            "127.0.0.1");
  for (const char* name : {"localhost", "127.0.0.1", "127.0.1.1", "::1"})
    EXPECT_TRUE(names_loopback(name)) << name;
  for (const char* name : {"10.0.0.1", "host", "0.0.0.0", "1270.example"})
    EXPECT_FALSE(names_loopback(name)) << name;
}

TEST(AddressTest, PortZeroPicksAFreePort) {
  const Listener first = listen_on("127.0.0.1", 0);
  EXPECT_GT(first.port, 0);
  EXPECT_THROW(listen_on("127.0.0.1", first.port), InputError);
  close(first.fd);
}

TEST(AddressTest, FirstFreePortOfTheRangeIsTaken) {
  const Listener first = listen_on("127.0.0.1", 0);
  EXPECT_THROW(listen_in("127.0.0.1", {.begin = first.port, .end = first.port}), InputError);
  close(first.fd);
  const Listener again = listen_in("127.0.0.1", {.begin = first.port, .end = first.port});
  EXPECT_EQ(again.port, first.port);
  close(again.fd);
}

TEST(AddressTest, ErrorNamesUnknownMaster) {
  try {
    own_address({.rank = 1,
                 .world_size = 2,
                 .local_world_size = 1,
                 .master_address = "no-such-host.invalid",
                 .master_port = 4711});
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("MASTER_ADDR=no-such-host.invalid cannot be found from rank 1"));
  }
}

}  // namespace
}  // namespace tlt::cluster
