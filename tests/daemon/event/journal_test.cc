#include "daemon/event/journal.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <string>
#include <utility>

#include "tests/daemon/event/fake_manager.h"
#include "tests/daemon/event/temp_dir.h"

namespace maru {
namespace {

using testing::HasSubstr;

struct Pipe {
    UniqueFd read_end, write_end;
    Pipe() {
        int fds[2];
        EXPECT_EQ(::pipe2(fds, O_CLOEXEC), 0);
        // The other end is as stderr mostly is: whoever only writes waits for its reader.
        EXPECT_EQ(::fcntl(fds[0], F_SETFL, O_NONBLOCK), 0);
        read_end.reset(fds[0]);
        write_end.reset(fds[1]);
    }
    std::string read() {
        char text[1 << 16];
        ssize_t got = ::read(read_end.get(), text, sizeof text);
        return std::string(text, got > 0 ? static_cast<size_t>(got) : 0);
    }
};

TEST(Journal, LinesCarryTheirPriorityAndWhatIsAboveTheLevelIsNotWritten) {
    Pipe pipe;
    Journal journal(pipe.write_end.get());
    journal.set_level(5);
    journal.log(6, "not this");
    journal.log(3, "bad\nnews\x1b[31m", {{"MARU_UID", "7"}});
    EXPECT_EQ(pipe.read(), "<3>bad?news?[31m\n");
}

TEST(Journal, AReaderThatStopsLosesLinesButNeverBlocksUs) {
    Pipe pipe;
    Journal journal(pipe.write_end.get());
    for (int i = 0; i < 1000; ++i)
        journal.log(3, std::string(1000, 'x'));
    std::string first = pipe.read();
    EXPECT_EQ(first.back(), '\n') << "lines are whole";
    journal.log(3, "after");
    EXPECT_THAT(pipe.read(), HasSubstr("after ("));
    journal.log(3, "again");
    EXPECT_EQ(pipe.read(), "<3>again\n");
}

// So that a pipe that has any room takes it whole.
TEST(Journal, NoLineIsLongerThanAPipeTakesAtOnce) {
    Pipe pipe;
    Journal journal(pipe.write_end.get());
    journal.log(3, std::string(60'000, 'x'));
    const std::string line = pipe.read();
    EXPECT_EQ(line.substr(0, 5), "<3>xx");
    EXPECT_EQ(line.back(), '\n');
    EXPECT_LE(line.size(), size_t{PIPE_BUF});
}

// $JOURNAL_STREAM, as the service manager sets it for a stderr that is the journal's.
class JournalStream {
  public:
    JournalStream(dev_t device, ino_t inode) {
        ::setenv("JOURNAL_STREAM", (std::to_string(device) + ":" + std::to_string(inode)).c_str(),
                 1);
    }
    explicit JournalStream(const struct stat &file) : JournalStream(file.st_dev, file.st_ino) {}
    ~JournalStream() { ::unsetenv("JOURNAL_STREAM"); }
};

struct stat stat_of(const UniqueFd &fd) {
    struct stat file = {};
    EXPECT_EQ(::fstat(fd.get(), &file), 0);
    return file;
}

TEST(Journal, NativeMessagesHaveFields) {
    TempDir dir;
    FakeManager journald(dir / "journal");
    Pipe pipe;
    JournalStream stream(stat_of(pipe.write_end));
    Journal journal(pipe.write_end.get(), journald.path());
    journal.log(4, "two\nlines", {{"MARU_SESSION", "9"}, {"MESSAGE_ID", message_id::kSession}});
    auto message = journald.next(1000);
    ASSERT_TRUE(message);
    EXPECT_EQ(message->text, std::string("PRIORITY=4\nSYSLOG_IDENTIFIER=marud\nMESSAGE=two?lines\n"
                                         "MARU_SESSION=9\nMESSAGE_ID=") +
                                 message_id::kSession + "\n");
}

TEST(Journal, FormIsChosenByWhatStderrIs) {
    TempDir dir;
    FakeManager journald(dir / "journal");
    Pipe pipe;
    const int stderr_fd = pipe.write_end.get();
    const struct stat file = stat_of(pipe.write_end);
    EXPECT_EQ(Journal(stderr_fd, journald.path()).form(), Journal::Form::Prefixed);
    {
        JournalStream stream(file);
        EXPECT_EQ(Journal(stderr_fd, journald.path()).form(), Journal::Form::Native);
        // A journald that is not there takes no datagram; the pipe may lead somewhere.
        EXPECT_EQ(Journal(stderr_fd, dir / "absent").form(), Journal::Form::Prefixed);
    }
    // Inherited from a parent whose stderr it was, and ours is another.
    for (const auto &[device, inode] :
         {std::pair(file.st_dev + 1, file.st_ino), std::pair(file.st_dev, file.st_ino + 1)}) {
        JournalStream stream(device, inode);
        EXPECT_EQ(Journal(stderr_fd, journald.path()).form(), Journal::Form::Prefixed);
    }
}

}  // namespace
}  // namespace maru
