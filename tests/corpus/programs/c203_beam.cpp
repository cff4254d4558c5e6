#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <future>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <string>
#include <thread>
#include <vector>

class LogMessage {
public:
  explicit LogMessage(const std::string &type) : fatal_(type == "FATAL") { std::cerr << type << ": "; }
  ~LogMessage() {
    std::cerr << std::endl;
    if (fatal_)
      std::exit(1);
  }
  std::ostream &stream() { return std::cerr; }

private:
  bool fatal_;
};

#define LOG(type) LogMessage(#type).stream()

inline void check(bool x, const char *expr, const char *file, int line, const char *err) {
  if (!x) {
    std::cerr << "[" << file << ":" << line << "] ";
    LOG(FATAL) << "\"" << expr << "\" check failed. " << err;
  }
}

#define VALID_CHECK_EQ(x, y, info) check((x) == (y), #x " == " #y, __FILE__, __LINE__, info)

class ThreadPool {
public:
  explicit ThreadPool(size_t threads) : stop_(false) {
    for (size_t i = 0; i < threads; ++i)
      workers_.emplace_back([this] { loop(); });
  }
  std::future<std::vector<int>> enqueue(std::function<std::vector<int>()> fn) {
    auto task = std::make_shared<std::packaged_task<std::vector<int>()>>(std::move(fn));
    auto result = task->get_future();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      tasks_.emplace([task] { (*task)(); });
    }
    cond_.notify_one();
    return result;
  }
  ~ThreadPool() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    cond_.notify_all();
    for (auto &w : workers_)
      w.join();
  }

private:
  void loop() {
    for (;;) {
      std::function<void()> task;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        cond_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
        if (stop_ && tasks_.empty())
          return;
        task = std::move(tasks_.front());
        tasks_.pop();
      }
      task();
    }
  }
  std::vector<std::thread> workers_;
  std::queue<std::function<void()>> tasks_;
  std::mutex mutex_;
  std::condition_variable cond_;
  bool stop_;
};

static std::vector<std::string> split_utf8(const std::string &text) {
  std::vector<std::string> out;
  for (unsigned char ch : text) {
    if ((ch & 0xC0) == 0x80 && !out.empty())
      out.back().push_back(static_cast<char>(ch));
    else
      out.emplace_back(1, static_cast<char>(ch));
  }
  return out;
}

static std::vector<int> ctc_beam_search_decoder(const std::vector<std::vector<double>> &probs_seq,
                                                const std::vector<std::string> &vocabulary, size_t beam_size,
                                                size_t blank_id) {
  for (size_t i = 0; i < probs_seq.size(); ++i)
    VALID_CHECK_EQ(probs_seq[i].size(), vocabulary.size(),
                   "The shape of probs_seq does not match with the shape of the vocabulary");

  std::map<std::vector<int>, std::pair<double, double>> beams;
  beams[{}] = {1.0, 0.0};
  for (const auto &prob : probs_seq) {
    std::map<std::vector<int>, std::pair<double, double>> next;
    for (const auto &beam : beams) {
      double pb = beam.second.first, pnb = beam.second.second;
      for (size_t c = 0; c < vocabulary.size(); ++c) {
        if (prob[c] < 1e-3)
          continue;
        if (c == blank_id) {
          next[beam.first].first += prob[c] * (pb + pnb);
          continue;
        }
        auto longer = beam.first;
        longer.push_back(static_cast<int>(c));
        if (!beam.first.empty() && beam.first.back() == static_cast<int>(c)) {
          next[longer].second += prob[c] * pb;
          next[beam.first].second += prob[c] * pnb;
        } else {
          next[longer].second += prob[c] * (pb + pnb);
        }
      }
    }
    std::vector<std::pair<double, std::vector<int>>> order;
    for (const auto &n : next)
      order.emplace_back(-(n.second.first + n.second.second), n.first);
    std::sort(order.begin(), order.end());
    beams.clear();
    double total = 0;
    for (size_t i = 0; i < std::min(beam_size, order.size()); ++i)
      total -= order[i].first;
    for (size_t i = 0; i < std::min(beam_size, order.size()); ++i) {
      auto &v = next[order[i].second];
      beams[order[i].second] = {v.first / total, v.second / total};
    }
  }
  std::vector<int> best;
  double score = -1;
  for (const auto &b : beams)
    if (b.second.first + b.second.second > score) {
      score = b.second.first + b.second.second;
      best = b.first;
    }
  return best;
}

extern "C" int beam_decode(const float *probs, const int *seq_lens, int batch, int max_time, int num_classes,
                           const char *labels, int beam_size, int num_processes, int blank_id, int *tokens,
                           int *out_len) {
  std::vector<std::string> vocabulary = split_utf8(labels);
  std::vector<std::vector<std::vector<double>>> inputs(batch);
  for (int b = 0; b < batch; ++b)
    for (int t = 0; t < std::min(seq_lens[b], max_time); ++t) {
      const float *row = probs + (static_cast<size_t>(b) * max_time + t) * num_classes;
      inputs[b].emplace_back(row, row + num_classes);
    }
  ThreadPool pool(num_processes);
  std::vector<std::future<std::vector<int>>> results;
  for (int b = 0; b < batch; ++b)
    results.push_back(pool.enqueue(
        [&, b] { return ctc_beam_search_decoder(inputs[b], vocabulary, beam_size, blank_id); }));
  for (int b = 0; b < batch; ++b) {
    std::vector<int> best = results[b].get();
    out_len[b] = static_cast<int>(best.size());
    std::copy(best.begin(), best.end(), tokens + static_cast<size_t>(b) * max_time);
  }
  return 1;
}
