#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

class Prefetcher {
public:
    Prefetcher(const float *table, const long *label, long rows, int columns, int batch, int depth, unsigned seed)
        : table_(table, table + rows * columns), label_(label, label + rows), rows_(rows), columns_(columns),
          batch_(batch), depth_(depth), random_(seed), worker_(&Prefetcher::fill, this) {}

    void next(float *x, long *y)
    {
        std::unique_lock<std::mutex> lock(mutex_);
        ready_.wait(lock, [this] { return !queue_.empty(); });
        std::vector<long> rows = std::move(queue_.front());
        queue_.pop_front();
        lock.unlock();
        space_.notify_one();
        for (int i = 0; i < batch_; ++i) {
            std::memcpy(x + (long)i * columns_, &table_[rows[i] * columns_], sizeof(float) * columns_);
            y[i] = label_[rows[i]];
        }
    }

    void stop()
    {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            stopping_ = true;
        }
        space_.notify_all();
        if (worker_.joinable())
            worker_.join();
    }

private:
    void fill()
    {
        std::uniform_int_distribution<long> pick(0, rows_ - 1);
        for (;;) {
            std::vector<long> rows(batch_);
            for (long &row : rows)
                row = pick(random_);
            std::unique_lock<std::mutex> lock(mutex_);
            space_.wait(lock, [this] { return stopping_ || (int)queue_.size() < depth_; });
            if (stopping_)
                return;
            queue_.push_back(std::move(rows));
            lock.unlock();
            ready_.notify_one();
        }
    }

    std::vector<float> table_;
    std::vector<long> label_;
    long rows_;
    int columns_, batch_, depth_;
    std::mt19937 random_;
    std::mutex mutex_;
    std::condition_variable ready_, space_;
    std::deque<std::vector<long>> queue_;
    bool stopping_ = false;
    std::thread worker_;
};

static std::vector<std::unique_ptr<Prefetcher>> loaders;

extern "C" {

int loader_open(const float *table, const long *label, long rows, int columns, int batch, int depth, unsigned seed)
{
    loaders.emplace_back(new Prefetcher(table, label, rows, columns, batch, depth, seed));
    return (int)loaders.size() - 1;
}

void loader_next(int id, float *x, long *y) { loaders[id]->next(x, y); }
void loader_close(int id) { loaders[id]->stop(); }

}
