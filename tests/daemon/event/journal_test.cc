#include "daemon/event/journal.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <climits>

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
    Journal journal(pipe.write_end.get(), Journal::Form::Prefixed, "");
    journal.set_level(5);
    journal.log(6, "not this");
    journal.log(3, "bad\nnews\x1b[31m", {{"MARU_UID", "7"}});
    EXPECT_EQ(pipe.read(), "<3>bad?news?[31m\n");
}

TEST(Journal, AReaderThatStopsLosesLinesButNeverBlocksUs) {
    Pipe pipe;
    Journal journal(pipe.write_end.get(), Journal::Form::Prefixed, "");
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
    Journal journal(pipe.write_end.get(), Journal::Form::Prefixed, "");
    journal.log(3, std::string(60'000, 'x'));
    const std::string line = pipe.read();
    EXPECT_EQ(line.substr(0, 5), "<3>xx");
    EXPECT_EQ(line.back(), '\n');
    EXPECT_LE(line.size(), size_t{PIPE_BUF});
}

TEST(Journal, NativeMessagesHaveFields) {
    TempDir dir;
    FakeManager journald(dir / "journal");
    Journal journal(2, Journal::Form::Native, journald.path());
    journal.log(4, "two\nlines", {{"MARU_SESSION", "9"}, {"MESSAGE_ID", message_id::kSession}});
    auto message = journald.next(1000);
    ASSERT_TRUE(message);
    EXPECT_EQ(message->text, std::string("PRIORITY=4\nSYSLOG_IDENTIFIER=marud\nMESSAGE=two?lines\n"
                                         "MARU_SESSION=9\nMESSAGE_ID=") +
                                 message_id::kSession + "\n");
}

TEST(Journal, FormIsChosenByWhatStderrIs) {
    Pipe pipe;
    EXPECT_EQ(Journal(pipe.write_end.get()).form(), Journal::Form::Prefixed);
    ::setenv("JOURNAL_STREAM", "1:2", 1);  // of somebody else
    EXPECT_EQ(Journal(pipe.write_end.get()).form(), Journal::Form::Prefixed);
    ::unsetenv("JOURNAL_STREAM");
}

}  // namespace
}  // namespace maru
