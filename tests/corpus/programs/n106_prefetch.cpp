#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

class Prefetcher {
 public:
  Prefetcher(std::FILE* file, int64_t batch, int64_t depth)
      : file_(file), batch_(batch), depth_(depth), worker_([this] { run(); }) {}

  int64_t next(int32_t* out) {
    std::unique_lock<std::mutex> lock(mutex_);
    ready_.wait(lock, [this] { return !queue_.empty(); });
    std::vector<int32_t> tokens = std::move(queue_.front());
    queue_.pop_front();
    space_.notify_one();
    std::memcpy(out, tokens.data(), tokens.size() * sizeof(int32_t));
    return static_cast<int64_t>(tokens.size());
  }

  void stop() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    space_.notify_one();
    worker_.join();
    std::fclose(file_);
  }

 private:
  void run() {
    for (;;) {
      std::vector<int32_t> tokens(batch_);
      size_t count = std::fread(tokens.data(), sizeof(int32_t), batch_, file_);
      if (count < static_cast<size_t>(batch_)) {
        std::rewind(file_);
        continue;
      }
      std::unique_lock<std::mutex> lock(mutex_);
      space_.wait(lock, [this] { return stopping_ || static_cast<int64_t>(queue_.size()) < depth_; });
      if (stopping_) return;
      queue_.push_back(std::move(tokens));
      ready_.notify_one();
    }
  }

  std::FILE* file_;
  int64_t batch_;
  int64_t depth_;
  bool stopping_ = false;
  std::deque<std::vector<int32_t>> queue_;
  std::mutex mutex_;
  std::condition_variable ready_, space_;
  std::thread worker_;
};

static std::unique_ptr<Prefetcher> prefetcher;

extern "C" {

int prefetch_open(const char* path, int64_t batch, int64_t depth) {
  std::FILE* file = std::fopen(path, "rb");
  if (!file) return -1;
  prefetcher = std::make_unique<Prefetcher>(file, batch, depth);
  return 0;
}

int64_t prefetch_next(int32_t* out) { return prefetcher->next(out); }

void prefetch_close() {
  prefetcher->stop();
  prefetcher.reset();
}
}
