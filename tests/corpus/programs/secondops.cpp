// More operators as users write them; each is wrong in the way of the issue that its program names.
#include <torch/extension.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <regex>
#include <string>
#include <thread>
#include <tuple>

// Sums of groups: the group numbers are taken as they come.
torch::Tensor scatter_add(torch::Tensor values, torch::Tensor groups, int64_t count) {
  const int64_t columns = values.size(1);
  torch::Tensor out = torch::zeros({count, columns});
  const float* v = values.data_ptr<float>();
  const int64_t* g = groups.data_ptr<int64_t>();
  float* o = out.data_ptr<float>();
  for (int64_t i = 0; i < values.size(0); i++)
    for (int64_t c = 0; c < columns; c++) o[g[i] * columns + c] += v[i * columns + c];
  return out;
}

// Means of boxes: the first number of a box is the image's, as float.
torch::Tensor roi_mean(torch::Tensor features, torch::Tensor boxes) {
  const int64_t channels = features.size(1), height = features.size(2), width = features.size(3);
  torch::Tensor out = torch::zeros({boxes.size(0), channels});
  const float* f = features.data_ptr<float>();
  const float* b = boxes.data_ptr<float>();
  float* o = out.data_ptr<float>();
  for (int64_t n = 0; n < boxes.size(0); n++) {
    const float* box = b + n * 5;
    const int image = static_cast<int>(box[0]);
    for (int64_t c = 0; c < channels; c++) {
      const float* plane = f + (image * channels + c) * height * width;
      for (int y = static_cast<int>(box[2]); y < static_cast<int>(box[4]); y++)
        for (int x = static_cast<int>(box[1]); x < static_cast<int>(box[3]); x++) o[n * channels + c] += plane[y * width + x];
    }
  }
  return out;
}

// The nearest pixel of each place.
torch::Tensor sample(torch::Tensor image, torch::Tensor places) {
  const int width = static_cast<int>(image.size(1));
  torch::Tensor out = torch::empty({places.size(0)});
  auto at = places.accessor<float, 2>();
  const float* pixels = image.data_ptr<float>();
  for (int64_t i = 0; i < places.size(0); i++) {
    const int x = static_cast<int>(std::floor(at[i][0])), y = static_cast<int>(std::floor(at[i][1]));
    out.data_ptr<float>()[i] = pixels[static_cast<int64_t>(y) * width + x];
  }
  return out;
}

// Rows of a table: the indices are read as int64 whatever they are.
torch::Tensor gather_rows(torch::Tensor table, torch::Tensor picks) {
  const int64_t columns = table.size(1);
  torch::Tensor out = torch::empty({picks.numel(), columns});
  const int64_t* p = static_cast<const int64_t*>(picks.data_ptr());
  for (int64_t i = 0; i < picks.numel(); i++)
    for (int64_t c = 0; c < columns; c++) out.data_ptr<float>()[i * columns + c] = table.data_ptr<float>()[p[i] * columns + c];
  return out;
}

// n + 1 sums are written into n places.
torch::Tensor prefix_sums(torch::Tensor x) {
  torch::Tensor out = torch::empty_like(x);
  float* o = out.data_ptr<float>();
  float sum = 0;
  for (int64_t i = 0; i < x.numel() + 4; i++) {
    o[i] = sum;
    sum += x.data_ptr<float>()[i < x.numel() ? i : 0];
  }
  return out;
}

// Two tensors that each free the same memory.
std::tuple<torch::Tensor, torch::Tensor> two_views(int64_t count) {
  float* memory = static_cast<float*>(calloc(static_cast<size_t>(count), sizeof(float)));
  auto release = [](void* p) { free(p); };
  torch::Tensor whole = torch::from_blob(memory, {count}, release, torch::kFloat32);
  torch::Tensor again = torch::from_blob(memory, {count}, release, torch::kFloat32);
  return {whole, again};
}

// Words by std::regex, whose matcher recurs for each character.
int64_t count_words(const std::string& text) {
  static const std::regex word("(\\w|-)+");
  int64_t count = 0;
  for (std::sregex_iterator match(text.begin(), text.end(), word), end; match != end; ++match) count++;
  return count;
}

// A thread that is a member, and is joined in stop() only.
class Prefetcher {
 public:
  explicit Prefetcher(torch::Tensor data) : thread_([this, data] {
    while (!stopped_) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }) {}
  void stop() {
    stopped_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stopped_{false};
  std::thread thread_;
};

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("scatter_add", &scatter_add);
  m.def("roi_mean", &roi_mean);
  m.def("sample", &sample);
  m.def("gather_rows", &gather_rows);
  m.def("prefix_sums", &prefix_sums);
  m.def("two_views", &two_views);
  m.def("count_words", &count_words);
  pybind11::class_<Prefetcher>(m, "Prefetcher").def(pybind11::init<torch::Tensor>()).def("stop", &Prefetcher::stop);
}
