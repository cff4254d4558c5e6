// Operators as users of torch's extension interface write them; each is wrong in the way of the issue that its program names.
#include <torch/extension.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>
#include <vector>

// Messages along edges: the node numbers are taken as they come.
torch::Tensor propagate(torch::Tensor x, torch::Tensor edges) {
  torch::Tensor out = torch::zeros_like(x);
  auto from = edges.accessor<int64_t, 2>();
  auto rows = x.accessor<float, 2>();
  auto sums = out.accessor<float, 2>();
  for (int64_t e = 0; e < edges.size(1); e++)
    for (int64_t c = 0; c < x.size(1); c++) sums[from[1][e]][c] += rows[from[0][e]][c];
  return out;
}

// Dense layers by hand: the bias is read as if it had a row for each sample.
torch::Tensor add_bias(torch::Tensor x, torch::Tensor bias) {
  torch::Tensor out = torch::empty_like(x);
  const float *a = x.data_ptr<float>(), *b = bias.data_ptr<float>();
  float* o = out.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); i++) o[i] = a[i] + b[i];
  return out;
}

// A transposed input is made contiguous, and the copy is gone before it is read.
static const float* flat(const torch::Tensor& x) {
  torch::Tensor copy = x.contiguous();
  return copy.data_ptr<float>();
}
double energy(torch::Tensor x) {
  const float* p = flat(x);
  double sum = 0;
  for (int64_t i = 0; i < x.numel(); i++) sum += std::sqrt(std::abs(p[i]));
  return sum;
}

// A volume's voxel by int arithmetic.
float voxel(torch::Tensor volume, int z, int y, int x) {
  const int rows = static_cast<int>(volume.size(1)), columns = static_cast<int>(volume.size(2));
  const int at = (z * rows + y) * columns + x;
  return volume.data_ptr<int8_t>()[at];
}

// A check inside an OpenMP loop throws.
torch::Tensor normalize_rows(torch::Tensor x) {
  torch::Tensor out = x.clone();
#pragma omp parallel for num_threads(2)
  for (int64_t r = 0; r < x.size(0); r++) {
    torch::Tensor row = out[r];
    const float norm = row.norm().item<float>();
    TORCH_CHECK(norm > 0, "row ", r, " has no length");
    row.div_(norm);
  }
  return out;
}

// A scratch array on the stack of a worker thread.
double resample(torch::Tensor audio) {
  double sum = 0;
  std::thread worker([&] {
    float window[4 << 20];
    for (int64_t i = 0; i < (4 << 20); i++) window[i] = audio.data_ptr<float>()[i % audio.numel()];
    for (float value : window) sum += value;
  });
  worker.join();
  return sum;
}

// A thread that keeps reading a caller's buffer after the call has returned.
static std::atomic<long> total{0};
void upload_async(torch::Tensor staging) {
  const int8_t* p = staging.data_ptr<int8_t>();
  const int64_t count = staging.numel();
  std::thread([p, count] {
    for (int round = 0; round < 1000; round++) {
      for (int64_t i = 0; i < count; i += 64) total += p[i];
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }).detach();
}

// Memory of one allocator, released by another one's deleter.
torch::Tensor wrap_array(int64_t address, int64_t count) {
  return torch::from_blob(reinterpret_cast<void*>(address), {count}, [](void* p) { free(p); }, torch::kFloat32);
}

// Class numbers into a table with at().
void load_labels(torch::Tensor labels) {
  std::thread loader([labels] {
    std::vector<float> weights(10, 1.0F);
    auto l = labels.accessor<int64_t, 1>();
    double sum = 0;
    for (int64_t i = 0; i < labels.size(0); i++) sum += weights.at(static_cast<size_t>(l[i]));
    total += static_cast<long>(sum);
  });
  loader.join();
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("propagate", &propagate);
  m.def("add_bias", &add_bias);
  m.def("energy", &energy);
  m.def("voxel", &voxel);
  m.def("normalize_rows", &normalize_rows);
  m.def("resample", &resample);
  m.def("upload_async", &upload_async);
  m.def("wrap_array", &wrap_array);
  m.def("load_labels", &load_labels);
}
