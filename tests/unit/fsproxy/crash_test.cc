// Every operation, killed before every step of it: afterwards the layer opens, shows what was there
// before or what the operation makes, and knows the base of whatever differs from lower.
//
// COFFERDAM_CRASH_STEPS=all walks every step of every operation; without it the long ones are
// walked by a stride, with another phase for each operation.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "common/base/sha256.h"
#include "common/layer/layer_stack.h"
#include "common/layer/squash.h"
#include "common/os/files.h"
#include "fsproxy/overlay/overlay.h"
#include "tests/unit/fsproxy/fault_calls.h"

namespace cofferdam::overlay {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSteps = 20;  // walked of one operation, without "all"
constexpr uid_t kOwner = 4711;

class Silent final : public Observer {
 public:
  void refused(std::string_view, const std::string&, const policy::FsDecision&) override {}
  void quota_exceeded(std::string_view, const std::string&) override {}
  void changed_under(const std::string&, NodeId) override {}
};

// A view of the layer in a directory.
class View final {
 public:
  explicit View(const fs::path& at) : at_(at), ledger_(1ULL << 34U, 100000) { open(); }

  void open() {
    const fs::path& at = at_;
    Options options;
    options.lower = (at / "lower").string();
    options.layer = (at / "layer").string();
    options.writable = true;
    options.record = true;
    // Root makes it for another; others make it for themselves.
    options.owner_uid = ::geteuid() == 0 ? kOwner : ::geteuid();
    options.owner_gid = ::geteuid() == 0 ? kOwner : ::getegid();
    auto opened = Overlay::open(std::move(options), ledger_, silent_);
    if (!opened.ok()) throw std::runtime_error(opened.error().message());
    view_ = std::move(opened).value();
  }

  // Works on the layer while no view of it is open.
  Status offline(const std::function<Status(const fs::path&, layer::MetaStore&)>& work) {
    view_.reset();
    const Status done = [&]() -> Status {
      TRY_ASSIGN(layer::MetaStore meta, layer::MetaStore::open(at_ / "layer/meta", 0));
      TRY(layer::recover_layers(at_ / "layer", meta));
      return work(at_ / "layer", meta);
    }();
    open();
    return done;
  }
  Status freeze() {
    layer::Checkpoint checkpoint;
    checkpoint.id = "c" + std::to_string(++frozen_);
    TRY(view_->prepare_freeze());
    TRY(view_->exchange_upper());
    return view_->commit_freeze(checkpoint);
  }

  Overlay& operator*() { return *view_; }
  Overlay* operator->() { return view_.get(); }
  LedgerTotals used() const { return ledger_.used(); }

  NodeId id(std::string_view path) {
    NodeId at = kRootId;
    for (std::size_t from = 0; from < path.size();) {
      const std::size_t slash = std::min(path.find('/', from), path.size());
      const auto entry = view_->lookup(at, std::string(path.substr(from, slash - from)));
      if (!entry.ok()) throw std::runtime_error(std::string(path) + ": " + entry.error().message());
      at = entry->node->id;
      from = slash + 1;
    }
    return at;
  }
  void write(std::string_view path, std::string_view text, int flags) {
    const auto opened = view_->open_file(id(path), flags);
    if (!opened.ok()) throw std::runtime_error(opened.error().message());
    (void)view_->write(*opened->file, text, 0).ok();
    (void)view_->sync(*opened->file, false).ok();
    view_->close(opened->file);
  }

  // path -> what a program can see of it.
  std::map<std::string, std::string> tree() {
    std::map<std::string, std::string> out;
    std::vector<std::pair<NodeId, std::string>> queue{{kRootId, ""}};
    while (!queue.empty()) {
      const auto [dir, path] = queue.back();
      queue.pop_back();
      const auto listed = view_->open_directory(dir);
      if (!listed.ok() || !view_->list_again(**listed).ok()) throw std::runtime_error("list");
      for (std::size_t i = 0; i < (*listed)->entries.size(); ++i) {
        const ListedEntry entry = (*listed)->entries[i];
        if (entry.name == "." || entry.name == "..") continue;
        const auto found = view_->lookup(dir, entry.name);
        if (!found.ok()) throw std::runtime_error(path + "/" + entry.name + ": listed only");
        const std::string below = path.empty() ? entry.name : path + "/" + entry.name;
        out[below] = describe(*found);
        if (found->node->is_dir()) queue.emplace_back(found->node->id, below);
      }
      view_->close(*listed);
    }
    return out;
  }

 private:
  std::string describe(const Entry& entry) {
    const struct stat& st = entry.st;
    std::string out = std::to_string(st.st_mode);
    // Those of a directory are told where nothing merges: that may change on the way.
    if (!S_ISDIR(st.st_mode)) out += " links " + std::to_string(st.st_nlink);
    // What came from lower keeps its number; others differ from run to run.
    if (st.st_ino < InodeNumbers::kUpperBorn) {
      out += " number " + std::to_string(st.st_ino);
    } else {
      out += " owner " + std::to_string(st.st_uid);
    }
    if (S_ISLNK(st.st_mode)) return out + " -> " + view_->read_symlink(entry.node->id).value();
    if (!S_ISREG(st.st_mode)) return out;
    const auto file = view_->open_file(entry.node->id, O_RDONLY);
    if (!file.ok()) throw std::runtime_error("open");
    std::string content(static_cast<std::size_t>(st.st_size), '\0');
    const auto got = view_->read(*file->file, content.data(), content.size(), 0);
    view_->close(file->file);
    return out + " size " + std::to_string(got.value()) + " " + to_hex(sha256(content));
  }

  fs::path at_;
  int frozen_ = 0;
  Silent silent_;
  Ledger ledger_;
  std::unique_ptr<Overlay> view_;
};

struct Operation {
  const char* name;
  std::function<void(View&)> before;  // what the layer holds when it begins
  std::function<Status(View&)> act;
  // More than one state of the view between before and after, for acts that are several calls.
  bool in_steps = false;
};

Status status_of(const Result<Entry>& entry) {
  return entry.ok() ? Status() : Status(entry.error());
}

Changes mode(mode_t value) {
  Changes out;
  out.mode = value;
  return out;
}

void nothing(View&) {}

std::vector<Operation> operations() {
  std::vector<Operation> all;
  const auto add = [&](const char* name, std::function<void(View&)> before,
                       std::function<Status(View&)> act) {
    all.push_back({name, std::move(before), std::move(act), false});
  };
  const auto open_for_writing = [](const char* path, int flags) {
    return [=](View& v) -> Status {
      TRY_ASSIGN(const auto opened, v->open_file(v.id(path), flags));
      v->close(opened.file);
      return {};
    };
  };
  const auto chmod_of = [](const char* path) {
    return [=](View& v) { return status_of(v->change(v.id(path), mode(0750), nullptr)); };
  };
  const auto unlink = [](const char* dir, const char* name) {
    return [=](View& v) { return v->unlink(v.id(dir), name); };
  };
  const auto rename = [](const char* from_dir, const char* from, const char* to_dir, const char* to,
                         unsigned flags) {
    return [=](View& v) { return v->rename(v.id(from_dir), from, v.id(to_dir), to, flags); };
  };
  const auto gone_file = [](View& v) { (void)v->unlink(kRootId, "file").ok(); };
  const auto gone_dir = [](View& v) {
    for (const char* name : {"x", "y"}) (void)v->unlink(v.id("small"), name).ok();
    (void)v->remove_directory(kRootId, "small").ok();
  };
  const auto emptied = [](View& v) {
    for (const char* name : {"x", "y"}) (void)v->unlink(v.id("small"), name).ok();
  };
  const auto mine = [](View& v) {
    const auto made = v->create(kRootId, "mine", 0644, O_WRONLY);
    (void)v->write(*made->file, "mine", 0).ok();
    v->close(made->file);
    (void)v->make_directory(kRootId, "mydir", 0755).ok();
    (void)v->make_directory(v.id("mydir"), "below", 0755).ok();
  };

  add("copy up a file", nothing, open_for_writing("dir/sub/two", O_WRONLY));
  add("copy up a file larger than bases are", nothing, open_for_writing("big", O_RDWR));
  add("copy up without content", nothing, open_for_writing("dir/one", O_WRONLY | O_TRUNC));
  add("change a lower file", nothing, chmod_of("file"));
  add("change a lower directory", nothing, chmod_of("dir/sub"));
  add("change a lower link", nothing, [](View& v) {
    Changes changes;
    changes.mtime = {5, 6};
    return status_of(v->change(v.id("link"), changes, nullptr));
  });
  add("change a lower FIFO", nothing, chmod_of("pipe"));
  add("copy up one of several names", nothing, open_for_writing("h1", O_WRONLY));
  add(
      "copy up all names", [](View&) {},
      [](View& v) -> Status {
        for (const char* name : {"h1", "h2", "dir/h3"}) (void)v.id(name);
        TRY_ASSIGN(const auto opened, v->open_file(v.id("h2"), O_WRONLY));
        v->close(opened.file);
        return {};
      });
  add(
      "ask for a name of a copied file", [](View& v) { v.write("h1", "ONE", O_WRONLY); },
      [](View& v) -> Status {
        (void)v.id("dir/h3");
        return {};
      });
  add(
      "ask for the last name of a copied file",
      [](View& v) {
        v.write("h1", "ONE", O_WRONLY);
        (void)v.id("h2");
        (void)v->unlink(kRootId, "h1").ok();
      },
      [](View& v) -> Status {
        (void)v.id("dir/h3");
        return {};
      });
  add("delete one of several names", nothing, unlink("", "h1"));
  add(
      "delete the last of several names",
      [](View& v) {
        v.write("h1", "ONE", O_WRONLY);
        (void)v->unlink(kRootId, "h1").ok();
        (void)v->unlink(v.id("dir"), "h3").ok();
      },
      unlink("", "h2"));
  add("delete a lower file", nothing, unlink("dir", "one"));
  add(
      "delete a copied file", [](View& v) { v.write("file", "new", O_WRONLY); },
      unlink("", "file"));
  add("delete a new file", mine, unlink("", "mine"));
  add("delete a lower directory", emptied,
      [](View& v) { return v->remove_directory(kRootId, "small"); });
  add(
      "delete a new directory",
      [](View& v) { (void)v->make_directory(v.id("dir"), "mine", 0755).ok(); },
      [](View& v) { return v->remove_directory(v.id("dir"), "mine"); });
  const auto create = [](const char* dir, const char* name) {
    return [=](View& v) -> Status {
      TRY_ASSIGN(const auto made, v->create(v.id(dir), name, 0640, O_WRONLY));
      v->close(made.file);
      return {};
    };
  };
  add("create a file", nothing, create("dir/sub", "new"));
  add("create a file where one was deleted", gone_file, create("", "file"));
  const auto mkdir = [](const char* dir, const char* name, mode_t bits) {
    return [=](View& v) { return status_of(v->make_directory(v.id(dir), name, bits)); };
  };
  add("create a directory", nothing, mkdir("dir", "new", 0755));
  add("create a directory with all bits", mine, mkdir("mydir", "new", 03711));
  add("create a directory where one was deleted", gone_dir, mkdir("", "small", 0755));
  add("create a directory where a file was deleted", gone_file, mkdir("", "file", 0755));
  add("create a link", nothing,
      [](View& v) { return status_of(v->make_symlink(v.id("dir"), "new", "target")); });
  add("create a link where a file was deleted", gone_file,
      [](View& v) { return status_of(v->make_symlink(kRootId, "file", "target")); });
  add("create a FIFO", nothing,
      [](View& v) { return status_of(v->make_node(v.id("dir"), "new", S_IFIFO | 0640U)); });
  add("link a lower file", nothing,
      [](View& v) { return status_of(v->link(v.id("file"), v.id("dir"), "new")); });
  add("link where a file was deleted", gone_file,
      [](View& v) { return status_of(v->link(v.id("dir/one"), kRootId, "file")); });
  const auto name_unnamed = [](const char* dir, const char* name) {
    return [=](View& v) -> Status {
      TRY_ASSIGN(const auto made, v->create_unnamed(v.id(dir), 0640, O_WRONLY));
      TRY(status_of(v->link(made.entry.node->id, v.id(dir), name)));
      v->close(made.file);
      return {};
    };
  };
  add("name a file without a name", nothing, name_unnamed("dir", "new"));
  add("name a file where one was deleted", gone_file, name_unnamed("", "file"));
  add("rename a lower file", nothing, rename("dir", "one", "", "new", 0));
  add("rename a lower file over another", nothing, rename("dir", "one", "", "file", 0));
  add("rename a new file over a lower one", mine, rename("", "mine", "", "file", 0));
  add("rename over a deleted name", gone_file, rename("dir", "one", "", "file", 0));
  add(
      "rename back", [&rename](View& v) { (void)rename("", "file", "dir", "moved", 0)(v).ok(); },
      rename("dir", "moved", "", "file", 0));
  add("rename a lower directory", nothing, rename("", "dir", "", "moved", 0));
  add(
      "rename a changed lower directory",
      [](View& v) {
        v.write("dir/sub/two", "new", O_WRONLY);
        (void)v->unlink(v.id("dir"), "one").ok();
      },
      rename("dir", "sub", "", "moved", 0));
  add("rename a lower directory over an emptied one", emptied, rename("", "dir", "", "small", 0));
  add("rename a lower directory over a deleted one", gone_dir, rename("", "dir", "", "small", 0));
  add("rename a new directory", mine, rename("", "mydir", "dir", "moved", 0));
  add("rename a new directory over an emptied one", emptied, [](View& v) -> Status {
    TRY(status_of(v->make_directory(kRootId, "fresh", 0755)));
    return v->rename(kRootId, "fresh", kRootId, "small", 0);
  });
  all.back().in_steps = true;
  add("exchange files", nothing, rename("dir", "one", "", "file", 2));
  add("exchange a file and a directory", nothing, rename("", "small", "", "file", 2));
  add("exchange directories", mine, rename("", "dir", "", "mydir", 2));
  const auto frozen = [mine](View& v) {
    mine(v);
    v.write("dir/sub/two", "new", O_WRONLY);
    v.write("h1", "ONE", O_WRONLY);
    (void)v->unlink(v.id("dir"), "one").ok();
    (void)v->link(v.id("mine"), v.id("mydir"), "linked").ok();
    (void)v.freeze().ok();
  };
  const auto twice = [frozen](View& v) {
    frozen(v);
    v.write("mine", "two", O_WRONLY);
    (void)v->unlink(v.id("mydir"), "linked").ok();
    v.write("file", "two", O_WRONLY);
    (void)v.freeze().ok();
    v.write("dir/sub/two", "three", O_WRONLY);
  };
  const auto freeze = [](View& v) { return v.freeze(); };
  add("checkpoint", mine, freeze);
  add("checkpoint again", twice, freeze);
  add("copy up a frozen file", frozen, open_for_writing("mine", O_WRONLY));
  add("copy up a frozen copy of several names", frozen, open_for_writing("h1", O_WRONLY));
  add("ask for a lower name of a frozen copy", frozen, [](View& v) -> Status {
    (void)v.id("dir/h3");
    return {};
  });
  add("delete a frozen file", frozen, unlink("", "mine"));
  add("rename a frozen directory", frozen, rename("", "mydir", "dir", "moved", 0));
  add("squash", twice, [](View& v) {
    return v.offline([](const fs::path& layer, layer::MetaStore& meta) -> Status {
      TRY(layer::squash_layers(layer, meta));
      return {};
    });
  });
  add("roll back", twice, [](View& v) {
    return v.offline([](const fs::path& layer, layer::MetaStore& meta) -> Status {
      TRY_ASSIGN(layer::Freeze rollback, layer::Freeze::prepare(layer, meta));
      TRY(rollback.exchange());
      TRY(rollback.commit_rollback("c1"));
      return layer::recover_layers(layer, meta);
    });
  });
  return all;
}

std::string difference(const std::map<std::string, std::string>& a,
                       const std::map<std::string, std::string>& b) {
  std::string out;
  for (const auto& [path, seen] : a) {
    const auto other = b.find(path);
    if (other == b.end() || other->second != seen) out += "now " + path + ": " + seen + "\n";
  }
  for (const auto& [path, seen] : b) {
    const auto other = a.find(path);
    if (other == a.end() || other->second != seen) out += "before " + path + ": " + seen + "\n";
  }
  return out;
}

class CrashTest : public testing::TestWithParam<std::size_t> {
 protected:
  CrashTest() : dir_(std::move(os::TempDir::create("/var/tmp", "crash-").value())) {
    ::umask(0);
    const fs::path lower = dir_.path() / "start/lower";
    fs::create_directories(lower / "dir/sub");
    fs::create_directories(lower / "small");
    fs::create_directories(dir_.path() / "start/layer");
    for (const char* name : {"file", "dir/one", "dir/sub/two", "small/x", "small/y", "h1"}) {
      std::ofstream(lower / name) << "lower " << name;
    }
    std::ofstream(lower / "big") << std::string((4U << 20U) + 10000, 'b');
    fs::create_hard_link(lower / "h1", lower / "h2");
    fs::create_hard_link(lower / "h1", lower / "dir/h3");
    fs::create_symlink("file", lower / "link");
    EXPECT_EQ(::mkfifo((lower / "pipe").c_str(), 0644), 0);
    // So that nothing counts as changed since the start of the sandbox.
    ::usleep(20000);
  }

  // A new layer in which the operation can begin. Not a copy of one: a layer knows its objects by
  // their inode numbers.
  fs::path make_turn(const Operation& operation) {
    const fs::path at = dir_.path() / "start";
    fs::remove_all(at / "layer");
    fs::create_directories(at / "layer");
    View view(at);
    operation.before(view);
    return at;
  }

  // Every path that differs from lower is told of; a known base is what lower has.
  void check_bases(const fs::path& at, const std::map<std::string, std::string>& tree,
                   const std::map<std::string, std::string>& original) {
    auto meta = layer::MetaStore::open_for_reading(at / "layer/meta");
    ASSERT_TRUE(meta.ok());
    const auto is_new = [&](std::string path) {
      while (!path.empty()) {
        const std::size_t slash = path.rfind('/');
        path.resize(slash == std::string::npos ? 0 : slash);
        const auto row = meta->base(path);
        if (row.ok() && *row && (*row)->version.kind != layer::Kind::kDirectory) return true;
        const os::UniqueFd fd(::open((at / "layer/upper" / path).c_str(), O_RDONLY | O_DIRECTORY));
        if (!path.empty() && fd.valid() && layer::is_opaque(fd.get()).value()) return true;
      }
      return false;
    };
    auto all = original;
    all.insert(tree.begin(), tree.end());
    for (const auto& [path, seen] : all) {
      const auto before = original.find(path);
      const auto after = tree.find(path);
      if (before != original.end() && after != tree.end() && before->second == after->second) {
        continue;
      }
      const auto row = meta->base(path);
      ASSERT_TRUE(row.ok());
      if (!*row) {
        EXPECT_TRUE(before == original.end() && is_new(path)) << path << " has no base";
        continue;
      }
      const fs::path below = at / "lower" / path;
      if ((*row)->state != layer::BaseState::kKnown) continue;
      EXPECT_EQ((*row)->version.kind != layer::Kind::kAbsent, before != original.end()) << path;
      if (!(*row)->stored) continue;
      const auto content = meta->base_content(path);
      ASSERT_TRUE(content.ok() && *content) << path;
      EXPECT_EQ(**content, fs::is_symlink(below) ? fs::read_symlink(below).string()
                                                 : os::read_file(below).value());
    }
  }

  os::TempDir dir_;
};

TEST_P(CrashTest, EveryStepLeavesTheViewBeforeOrAfter) {
  const Operation operation = operations()[GetParam()];
  std::map<std::string, std::string> original;
  std::map<std::string, std::string> before;
  {
    View view(dir_.path() / "start");
    original = view.tree();
  }
  std::map<std::string, std::string> after;
  std::int64_t steps = 0;
  {
    const fs::path at = make_turn(operation);
    View view(at);
    before = view.tree();
  }
  {
    // Looking may link names; so each turn begins with the same layer.
    const fs::path at = make_turn(operation);
    View view(at);
    fault::die_at(-1);
    const Status done = operation.act(view);
    steps = fault::steps();
    fault::disarm();
    ASSERT_TRUE(done.ok()) << done.error().message();
    after = view.tree();
  }
  ASSERT_GT(steps, 0);
  const char* wanted = std::getenv("COFFERDAM_CRASH_STEPS");
  const bool every = wanted != nullptr && std::string_view(wanted) == "all";
  const std::int64_t stride = every ? 1 : std::max<std::int64_t>(1, steps / kSteps);
  const std::int64_t phase = static_cast<std::int64_t>(GetParam()) % stride;
  for (std::int64_t step = 1 + phase; step <= steps; step += stride) {
    SCOPED_TRACE("killed before step " + std::to_string(step) + " of " + std::to_string(steps));
    const fs::path at = make_turn(operation);
    const pid_t child = ::fork();
    if (child == 0) {
      View view(at);
      fault::die_at(step);
      const bool done = operation.act(view).ok();
      ::_exit(done ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    {
      View view(at);
      EXPECT_TRUE(fs::is_empty(at / "layer/work"));
      const auto now = view.tree();
      if (!operation.in_steps) {
        EXPECT_TRUE(now == before || now == after) << difference(now, before);
      }
      check_bases(at, now, original);
      // Nobody got an answer: whoever asks again gets what was wanted.
      if (now == before) {
        const Status again = operation.act(view);
        EXPECT_TRUE(again.ok()) << again.error().message();
        EXPECT_EQ(view.tree(), after);
      }
    }
    // What is charged is what lies there.
    LedgerTotals charged;
    {
      View view(at);
      charged = view.used();
    }
    View view(at);
    EXPECT_EQ(view.used().bytes, charged.bytes);
    if (HasFailure()) break;
  }
}

class Durable : public CrashTest {};

TEST_P(Durable, AFileThatSurvivesDoesSoWithItsBase) {
  View view(dir_.path() / "start");
  const auto opened = view->open_file(view.id("file"), O_WRONLY);
  ASSERT_TRUE(opened.ok() && view->write(*opened->file, "new", 0).ok());
  const auto ends = [](std::string_view end) {
    for (const std::string& file : fault::synced()) {
      if (file.ends_with(end)) return true;
    }
    return false;
  };
  fault::die_at(-1);
  ASSERT_TRUE(view->sync(*opened->file, true).ok());
  EXPECT_TRUE(ends("/layer/meta-records") && ends("/layer/upper/file"));
  // Nothing new to tell: one sync, not two.
  fault::die_at(-1);
  ASSERT_TRUE(view->write(*opened->file, "newer", 0).ok());
  ASSERT_TRUE(view->sync(*opened->file, true).ok());
  EXPECT_EQ(fault::synced().size(), 1U);
  ASSERT_TRUE(view->create(kRootId, "another", 0600, O_WRONLY).ok());
  fault::die_at(-1);
  ASSERT_TRUE(view->sync_directory(kRootId).ok());
  EXPECT_TRUE(ends("/layer/meta-records") && ends("/layer/upper"));
  fault::disarm();
  view->close(opened->file);
}

INSTANTIATE_TEST_SUITE_P(Syncs, Durable, testing::Values(0));

INSTANTIATE_TEST_SUITE_P(Operations, CrashTest, testing::Range<std::size_t>(0, operations().size()),
                         [](const auto& parameter) {
                           std::string name = operations()[parameter.param].name;
                           for (char& c : name) {
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace cofferdam::overlay
