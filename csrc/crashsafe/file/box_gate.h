// Held while the black box moves from memory into its file, and by writers into the memory that it moves from.
#pragma once

namespace pytracer::crashsafe {

/// No other thread moves the black box from now on; false: this thread does, or another one takes too long. For fork(), and for BoxGate.
bool close_gate() noexcept;

/// Reverts what this thread closed; nothing else.
void open_gate() noexcept;

/// In a forked child: the thread that held the gate does not exist.
void forget_gate() noexcept;

/// Held for a block. Free of charge once there is a file.
class BoxGate {
 public:
  BoxGate() noexcept;
  ~BoxGate();
  BoxGate(const BoxGate&) = delete;
  BoxGate& operator=(const BoxGate&) = delete;
  /// False: this thread is moving the black box, or another one takes too long.
  bool open() const noexcept { return open_; }

 private:
  bool held_, open_;
};

}  // namespace pytracer::crashsafe
