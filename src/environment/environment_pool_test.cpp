// SPDX-License-Identifier: Apache-2.0
#include "environment/environment_pool.h"

#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "base/check.h"
#include "tests/support/test_folder.h"

namespace tlt::environment {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kLimit = 60;  // seconds; reached by no test that does not set the time

EnvironmentOptions python(const std::string& code) {
  EnvironmentOptions options;
  options.command = {"python3", "-c", "import json, sys, time\n" + code};
  options.timeout_seconds = kLimit;
  return options;
}

// Answers reset, and then what `answer` says, which may use `call` and `print`.
std::string steps(const std::string& answer) {
  return "for line in sys.stdin:\n"
         "  call = json.loads(line)\n"
         "  if call['call'] == 'close': continue\n"
         "  if call['call'] == 'reset': print(json.dumps({'id': call['id']}), flush=True)\n"
         "  else:\n"
         "    " +
         answer + "\n    sys.stdout.flush()\n";
}

EnvironmentAnswer next(EnvironmentPool& pool) {
  for (;;) {
    std::vector<EnvironmentAnswer> answers = pool.poll();
    if (!answers.empty()) {
      EXPECT_EQ(answers.size(), 1u);
      return answers.front();
    }
    pool.wait(0.1);
  }
}

EnvironmentTurn turn(const std::string& text) {
  return {.message = {{"role", "assistant"}, {"content", text}}, .tool_calls = Json::array()};
}

// Announces lists of calls, and writes the number of calls of each line into the file. A list gets
// `answers`, a list of answers that may use `calls`, as one line.
std::string batches(const std::string& file, int max_batch, const std::string& answers) {
  return "file = open('" + file + "', 'w', buffering=1)\n" +
         "for line in sys.stdin:\n"
         "  calls = json.loads(line)\n"
         "  file.write(f'{len(calls)}\\n' if isinstance(calls, list) else 'one\\n')\n"
         "  if not isinstance(calls, list): calls = [calls]\n"
         "  calls = [call for call in calls if call['call'] != 'close']\n"
         "  if calls and calls[0]['call'] == 'reset':\n"
         "    answers = [{'id': call['id'], 'max_batch': " +
         std::to_string(max_batch) +
         "} for call in calls]\n"
         "    for answer in answers: print(json.dumps(answer), flush=True)\n"
         "  elif calls:\n"
         "    print(json.dumps(" +
         answers + "), flush=True)\n";
}

std::string text_of(const std::string& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

std::map<int64_t, EnvironmentAnswer> next(EnvironmentPool& pool, size_t count) {
  std::map<int64_t, EnvironmentAnswer> all;
  while (all.size() < count) {
    for (EnvironmentAnswer& one : pool.poll()) all[one.episode] = std::move(one);
    if (all.size() < count) pool.wait(0.1);
  }
  return all;
}

std::vector<int64_t> open_some(EnvironmentPool& pool, size_t count) {
  std::vector<int64_t> episodes;
  for (size_t i = 0; i < count; ++i) {
    episodes.push_back(pool.open(Json::object(), 1));
    EXPECT_EQ(next(pool).fault, "");
  }
  return episodes;
}

// The fault of a step that the program answers so.
std::string fault_of(const std::string& answer) {
  EnvironmentPool pool(python(steps(answer)));
  const int64_t episode = pool.open(Json::object(), 1);
  const EnvironmentAnswer begun = next(pool);
  EXPECT_EQ(begun.fault, "");
  pool.step(episode, turn("x"));
  const EnvironmentAnswer seen = next(pool);
  EXPECT_EQ(seen.episode, episode);
  // Whatever happened, the next episode begins.
  const int64_t after = pool.open(Json::object(), 1);
  const EnvironmentAnswer again = next(pool);
  EXPECT_EQ(again.episode, after);
  EXPECT_EQ(again.fault, "");
  return seen.fault;
}

TEST(EnvironmentPoolTest, EpisodesShareAProgramAndAnswersComeInAnyOrder) {
  EnvironmentPool pool(python(R"(
calls = [json.loads(sys.stdin.readline()) for i in range(3)]
for call in reversed(calls):
  print(json.dumps({'id': call['id'], 'messages': [{'role': 'user', 'content': str(call['seed']) + call['row']['q']}]}))
sys.stdout.flush()
call = json.loads(sys.stdin.readline())
print(json.dumps({'id': call['id'], 'reward': 0.5, 'done': True, 'extra': {'n': 2, 'text': 'x'},
                  'messages': [{'role': 'tool', 'content': call['message']['content'] + call['tool_calls'][0]['name']}]}), flush=True)
sys.stdin.readline())"));
  std::vector<int64_t> episodes;
  for (uint32_t seed = 5; seed < 8; ++seed) episodes.push_back(pool.open({{"q", "?"}}, seed));
  std::vector<EnvironmentAnswer> answers;
  while (answers.size() < 3) {
    pool.wait(0.1);
    for (EnvironmentAnswer& one : pool.poll()) answers.push_back(one);
  }
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(answers[i].fault, "");
    EXPECT_EQ(answers[i].episode, episodes[2 - i]);
    EXPECT_EQ(answers[i].messages[0]["content"], std::to_string(7 - i) + "?");
  }
  pool.step(episodes[1], {.message = {{"role", "assistant"}, {"content", "hi "}},
                          .tool_calls = {{{"id", "a"}, {"name", "f"}, {"arguments", {{"x", 1}}}}}});
  const EnvironmentAnswer last = next(pool);
  EXPECT_EQ(last.fault, "");
  EXPECT_EQ(last.messages[0]["content"], "hi f");
  EXPECT_EQ(last.reward, 0.5);
  EXPECT_TRUE(last.is_done);
  EXPECT_EQ(last.extras, (std::map<std::string, double>{{"n", 2}}));
}

TEST(EnvironmentPoolTest, NonsenseFailsTheEpisode) {
  EXPECT_THAT(fault_of("print('Loading the model')"),
              AllOf(HasSubstr("environment.command `"), HasSubstr("wrote `Loading the model`"),
                    HasSubstr("standard error")));
  EXPECT_THAT(fault_of("print(json.dumps({'id': 77, 'done': True}))"),
              HasSubstr("answers no open call"));
  EXPECT_THAT(fault_of("sys.stdout.write(2 * (json.dumps({'id': call['id']}) + '\\n'))"),
              HasSubstr("answers no open call"));
  EXPECT_THAT(fault_of("print(json.dumps([1]))"), HasSubstr("answers no open call"));
}

TEST(EnvironmentPoolTest, WrongFieldsFailTheEpisodeOnly) {
  const auto with = [](const std::string& fields) {
    return "print(json.dumps({'id': call['id'], " + fields + "}))";
  };
  EXPECT_THAT(fault_of(with("'reward': 'much'")), HasSubstr("`reward` is no number"));
  EXPECT_THAT(fault_of(with("'reward': 1e300")), HasSubstr("`reward` is no number"));
  EXPECT_THAT(fault_of(with("'done': 1")), HasSubstr("`done` is not true or false"));
  EXPECT_THAT(fault_of(with("'messages': 'hi'")), HasSubstr("`messages` is no list"));
  EXPECT_THAT(fault_of(with("'messages': [{'role': 'user'}]")), HasSubstr("a message is not like"));
  EXPECT_THAT(fault_of(with("'messages': [{'role': 'assistant', 'content': 'x'}]")),
              HasSubstr("only the model writes those"));
  EXPECT_THAT(fault_of(with("'error': 'no such tool'")), HasSubstr("says: no such tool"));
}

// Answers reset with the fields of its row.
const char* const kEcho =
    "for line in sys.stdin:\n"
    "  call = json.loads(line)\n"
    "  if call['call'] == 'reset': print(json.dumps({'id': call['id'], **call['row']}), "
    "flush=True)";

TEST(EnvironmentPoolTest, ResetMayReplaceThePrompt) {
  EnvironmentPool pool(python(kEcho));
  const auto answer_with = [&](const Json& fields) {
    pool.open(fields, 1);
    return next(pool);
  };
  const Json hi = {{{"role", "user"}, {"content", "hi"}}};
  const EnvironmentAnswer messages = answer_with({{"prompt", hi}});
  EXPECT_EQ(messages.fault, "");
  EXPECT_EQ(messages.prompt, hi);
  EXPECT_EQ(answer_with({{"prompt_token_ids", {3, 1, 2}}}).prompt_token_ids,
            (std::vector<int32_t>{3, 1, 2}));
  EXPECT_THAT(answer_with({{"prompt", "hi"}}).fault, HasSubstr("`prompt` is no list"));
  EXPECT_THAT(answer_with({{"prompt", Json::array()}}).fault,
              HasSubstr("`prompt` has no messages"));
  EXPECT_THAT(answer_with({{"prompt", std::vector<int>(1001)}}).fault,
              HasSubstr("more than 1000 entries"));
  for (const char* tokens :
       {"[]", "\"12\"", "[1, -1]", "[1.5]", "[2147483648]", "[true]", "[1180591620717411303424]"})
    EXPECT_THAT(answer_with({{"prompt_token_ids", Json::parse(tokens)}}).fault,
                HasSubstr("`prompt_token_ids` is no list of token ids"))
        << tokens;
  EXPECT_THAT(answer_with({{"prompt_token_ids", Json::array({1})}, {"messages", hi}}).fault,
              HasSubstr("`messages` cannot follow `prompt_token_ids`"));
}

TEST(EnvironmentPoolTest, CallsShareALineOnceTheProgramTakesLists) {
  const TestFolder folder;
  const std::string lines = folder / "lines";
  EnvironmentPool pool(
      python(batches(lines, /*max_batch=*/2,
                     "[{'id': call['id'], 'reward': call['turn']} for call in reversed(calls)]")));
  const std::vector<int64_t> episodes = open_some(pool, 3);
  for (int64_t turns = 1; const int64_t episode : episodes)
    pool.step(episode, {.message = turn("x").message, .tool_calls = {}, .turn = turns++});
  pool.flush();
  const auto answers = next(pool, 3);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(answers.at(episodes[i]).fault, "");
    EXPECT_EQ(answers.at(episodes[i]).reward, i + 1.0);
  }
  pool.close_all();
  EXPECT_THAT(text_of(lines), ::testing::StartsWith("one\none\none\n2\none\n"));
}

// Of the entries of one list, those that can be attributed.
TEST(EnvironmentPoolTest, FaultOfAnEntryFailsItsEpisodeOnly) {
  const TestFolder folder;
  EnvironmentPool pool(python(
      batches(folder / "lines", 64,
              "[{'id': calls[0]['id'], 'reward': 'much'}, {'id': calls[1]['id'], 'error': 'no'}] + "
              "[{'id': call['id'], 'reward': 1} for call in calls[2:]] if len(calls) > 2 "
              "else {'id': calls[0]['id'], 'reward': 2}")));
  const std::vector<int64_t> episodes = open_some(pool, 4);
  for (const int64_t episode : episodes) pool.step(episode, turn("x"));
  auto answers = next(pool, 4);
  EXPECT_THAT(answers.at(episodes[0]).fault, HasSubstr("`reward` is no number"));
  EXPECT_THAT(answers.at(episodes[1]).fault, HasSubstr("says: no"));
  for (const size_t i : {2, 3}) {
    EXPECT_EQ(answers.at(episodes[i]).fault, "");
    EXPECT_EQ(answers.at(episodes[i]).reward, 1);
  }
  pool.step(episodes[2], turn("x"));
  EXPECT_EQ(next(pool).reward, 2) << "the same program continues";
  const int64_t open = episodes[3];
  pool.step(open, turn("x"));
  EXPECT_EQ(next(pool).episode, open);
}

TEST(EnvironmentPoolTest, ListThatAnswersNoOpenCallEndsTheProgram) {
  const TestFolder folder;
  for (const char* entry : {"{'id': 77}", "{'id': calls[0]['id']}", "3", "[]"}) {
    EnvironmentPool pool(python(
        batches(folder / "lines", 64, std::string("[{'id': calls[0]['id']}, ") + entry + "]")));
    const std::vector<int64_t> episodes = open_some(pool, 2);
    pool.step(episodes[0], turn("x"));
    const auto answers = next(pool, 2);
    for (const int64_t episode : episodes)
      EXPECT_THAT(answers.at(episode).fault, HasSubstr("answers no open call")) << entry;
    EXPECT_EQ(open_some(pool, 1).size(), 1u) << "the next episode begins";
  }
}

TEST(EnvironmentPoolTest, WrongMaxBatchFailsTheEpisode) {
  EnvironmentPool pool(python(kEcho));
  for (const Json& size : Json{0, -3, "many", 1.5}) {
    pool.open({{"max_batch", size}}, 1);
    EXPECT_THAT(next(pool).fault, HasSubstr("`max_batch` is no number from 1 on")) << size;
  }
}

TEST(EnvironmentPoolTest, DeathFailsTheEpisodeWithItsLastWords) {
  EXPECT_THAT(fault_of("print('out of luck', file=sys.stderr); sys.exit(3)"),
              AllOf(HasSubstr("ended with status 3"), HasSubstr("out of luck")));
}

TEST(EnvironmentPoolTest, FloodFailsTheEpisode) {
  EXPECT_THAT(fault_of("sys.stdout.write('x' * (1 << 23))"), HasSubstr("a line of more than"));
  EXPECT_THAT(fault_of("[print('{}') for i in range(100000)]"), HasSubstr("answers no open call"));
}

// Time that the test sets: the machine's load does not matter.
struct SetTime {
  EnvironmentPool::Clock::time_point time;
  std::function<EnvironmentPool::Clock::time_point()> reader() {
    return [this] { return time; };
  }
};

TEST(EnvironmentPoolTest, SilentProgramIsEnded) {
  SetTime clock;
  EnvironmentPool pool(python(steps("time.sleep(1000)")), clock.reader());
  const int64_t episode = pool.open(Json::object(), 1), other = pool.open(Json::object(), 1);
  for (std::vector<EnvironmentAnswer> begun; begun.size() < 2; pool.wait(0.1))
    for (EnvironmentAnswer& one : pool.poll()) begun.push_back(one);
  clock.time += std::chrono::seconds(5);
  pool.step(episode, turn("x"));
  clock.time += std::chrono::seconds(59);
  EXPECT_TRUE(pool.poll().empty());
  clock.time += std::chrono::seconds(2);
  const std::vector<EnvironmentAnswer> answers = pool.poll();
  ASSERT_EQ(answers.size(), 2u) << "the other episode of the program fails with it";
  for (const EnvironmentAnswer& answer : answers)
    EXPECT_THAT(answer.fault, HasSubstr("gave no answer within 60 seconds"));
  EXPECT_NE(answers[0].episode, answers[1].episode);
  pool.close(other);
  pool.open(Json::object(), 1);
  EXPECT_EQ(next(pool).fault, "");
}

// One call is never answered; the program answers others meanwhile and is kept.
TEST(EnvironmentPoolTest, LateAnswerFailsItsEpisodeOnly) {
  SetTime clock;
  EnvironmentPool pool(python(steps("if call['message']['content'] != 'lost': "
                                    "print(json.dumps({'id': call['id']}))")),
                       clock.reader());
  const int64_t lost = pool.open(Json::object(), 1);
  EXPECT_EQ(next(pool).fault, "");
  const int64_t other = pool.open(Json::object(), 1);
  EXPECT_EQ(next(pool).fault, "");
  pool.step(lost, turn("lost"));
  clock.time += std::chrono::seconds(50);
  pool.step(other, turn("x"));
  const EnvironmentAnswer kept = next(pool);
  EXPECT_EQ(kept.episode, other);
  EXPECT_EQ(kept.fault, "");
  clock.time += std::chrono::seconds(20);
  const EnvironmentAnswer late = next(pool);
  EXPECT_EQ(late.episode, lost);
  EXPECT_THAT(late.fault, HasSubstr("gave no answer within 60 seconds"));
  pool.step(other, turn("x"));
  EXPECT_EQ(next(pool).fault, "") << "the same program";
}

TEST(EnvironmentPoolTest, ClosedEpisodesAreToldAndTheirAnswersIgnored) {
  const TestFolder folder;
  EnvironmentPool pool(python("out = open('" + (folder / "calls") + R"(', 'w', buffering=1)
for line in sys.stdin:
  out.write(line)
  call = json.loads(line)
  if call['call'] != 'close': print(json.dumps({'id': call['id']}), flush=True))"));
  const int64_t first = pool.open(Json::object(), 1);
  pool.close(first);
  const int64_t second = pool.open(Json::object(), 1);
  EXPECT_EQ(next(pool).episode, second);
  pool.close_all();
  pool.close(second);
  std::ifstream file(folder / "calls");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_THAT(text.str(), HasSubstr("{\"call\":\"close\",\"episode\":1}"));
}

TEST(EnvironmentPoolTest, CheckRefusesAProgramThatDoesNotBegin) {
  EnvironmentOptions missing;
  missing.command = {"/no/such/program"};
  EnvironmentPool pool(missing);
  EXPECT_THAT(thrown_message<InputError>([&] { pool.check(Json::object()); }),
              AllOf(HasSubstr("/no/such/program"), HasSubstr("first row")));
  EnvironmentPool works(python(steps("pass")));
  works.check(Json::object());
}

// Each of these ignores the end of its input, and is killed after half a second.
TEST(EnvironmentPoolTest, ProgramsEndTogether) {
  constexpr int64_t kPrograms = 40;
  EnvironmentOptions options;
  options.command = {"sleep", "1000"};
  options.processes = kPrograms;
  auto pool = std::make_unique<EnvironmentPool>(options);
  for (int64_t i = 0; i < kPrograms; ++i) pool->open(Json::object(), 1);
  const auto start = std::chrono::steady_clock::now();
  pool.reset();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_GE(seconds.count(), 0.4) << "they have some time to exit";
  EXPECT_LT(seconds.count(), kPrograms * 0.5);
}

// docs/environments.md: the example program.
TEST(EnvironmentPoolTest, ExampleOfTheDocumentation) {
  std::ifstream file(TLT_SOURCE_DIR "/docs/environments.md");
  std::stringstream text;
  text << file.rdbuf();
  const std::string page = text.str(), fence = "```python\n";
  const size_t begin = page.find(fence);
  ASSERT_NE(begin, page.npos);
  const TestFolder folder;
  std::ofstream(folder / "number.py")
      << page.substr(begin + fence.size(), page.find("```", begin + 3) - begin - fence.size());
  EnvironmentOptions options;
  options.command = {"python3", folder / "number.py"};
  EnvironmentPool pool(options);
  const int64_t episode = pool.open(Json::object(), 1);
  EXPECT_THAT(next(pool).messages.dump(), HasSubstr("from 1 to 100"));
  EnvironmentAnswer answer;
  int low = 1, high = 100;
  while (!answer.is_done) {
    const int middle = (low + high) / 2;
    pool.step(episode, turn("It is " + std::to_string(middle)));
    answer = next(pool);
    ASSERT_EQ(answer.fault, "");
    (answer.messages.dump().find("larger") != std::string::npos ? low : high) = middle;
    if (answer.messages.dump().find("larger") != std::string::npos) ++low;
  }
  EXPECT_EQ(answer.reward, 1);
}

}  // namespace
}  // namespace tlt::environment
