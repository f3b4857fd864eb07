// Descriptors that a hostile client may send, each with what is nasty about it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "libmaru/base/unique_fd.h"

namespace maru::test {

struct StrangeFile {
    std::string name;
    UniqueFd fd;
    std::string missing;  // why there is none, on this machine
};

// All but the FUSE file: a directory, a pidfd, an epoll, an io_uring, /dev/null, a pipe, a socket of
// a TCP connection that lingers, memfds without seals, of the wrong size, or sealed too much.
std::vector<StrangeFile> strange_files(uint64_t segment_bytes);

// A connected TCP socket whose close() waits 60 s: the other end has not read what it was sent.
class LingeringSocket {
  public:
    LingeringSocket();
    const StrangeFile &file() const { return file_; }
    void close_ours() { file_.fd.reset(); }              // waits, if it is the last
    void leave_open() { leaked_ = file_.fd.release(); }  // for the exit, which does not wait

  private:
    int leaked_ = -1;
    UniqueFd listener_, peer_;
    StrangeFile file_;
};

// An open file of a FUSE filesystem whose server never answers a flush: close() of its last
// descriptor in a process never returns, until the server goes. Needs root and /dev/fuse.
class NeverFlushedFile {
  public:
    NeverFlushedFile();
    ~NeverFlushedFile();
    NeverFlushedFile(const NeverFlushedFile &) = delete;
    NeverFlushedFile &operator=(const NeverFlushedFile &) = delete;
    const StrangeFile &file() const { return file_; }
    int flushes() const;  // that were asked for and not answered
    void end();           // the server goes: every waiting close() returns

  private:
    struct Server;
    std::string directory_;
    bool mounted_ = false;
    Server *server_ = nullptr;  // ours, with a thread of its own
    StrangeFile file_;
};

}  // namespace maru::test
