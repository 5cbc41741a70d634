#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "orchestrator/probe/probe.h"

namespace probe {
namespace {

constexpr unsigned kPatienceSeconds = 30;

long long now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

int run_one(const char* self, const std::vector<std::string>& words) {
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) return kUnusable;
  if (pid == 0) {
    ::alarm(kPatienceSeconds);
    std::vector<char*> argv{const_cast<char*>(self)};
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    ::execv(self, argv.data());
    ::_exit(kUnusable);
  }
  int status = 0;
  if (::waitpid(pid, &status, 0) != pid) return kUnusable;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

int run_battery(const char* self, const char* file) {
  std::ifstream in(file);
  if (!in) return unusable("battery");
  // Read before the first attempt: none is to find a descriptor of ours.
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  in.close();
  for (const std::string& line : lines) {
    std::vector<std::string> words;
    std::istringstream fields(line);
    for (std::string word; std::getline(fields, word, '\t');) words.push_back(word);
    if (words.size() < 2) continue;
    std::printf("@@ %s\n", words[0].c_str());
    words.erase(words.begin());
    const long long begin = now_us();
    const int status = run_one(self, words);
    std::printf("@= %d %lld %lld\n", status, begin, now_us());
    // What follows must not fall into the same instant as the events of this one.
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return 0;
}

}  // namespace probe
