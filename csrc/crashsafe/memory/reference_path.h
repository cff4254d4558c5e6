// How a value was reached, as a Python expression: `self.caches[1]`. Becomes text only when a tensor was found there.
#pragma once
#include "crashsafe/python/python_objects.h"

#include <cstdint>
#include <cstring>

namespace pytracer::crashsafe {

/// A variable and at most two steps down from it.
class ReferencePath {
 public:
  enum Kind : uint32_t { kVariable, kAttribute, kIndex, kKey };

  bool full() const { return depth_ == kDepth; }
  bool outermost() const { return depth_ == 1; }
  bool below_attribute() const { return full() && steps_[1].kind == kAttribute && steps_[2].kind == kAttribute; }
  bool in_container() const {
    for (uint32_t i = 0; i < depth_; i++)
      if (steps_[i].kind == kIndex || steps_[i].kind == kKey) return true;
    return false;
  }
  /// The name of the innermost step that has one: a variable, an attribute, or a text that is a key. Returns its size, at most `room`.
  uint32_t write_name(char* to, uint32_t room) const {
    Writer out{to, room};
    for (uint32_t i = depth_; i-- > 0;)
      if (steps_[i].kind != kIndex && (steps_[i].kind != kKey || type_of(steps_[i].what) == python_types().text)) {
        out.name(steps_[i].what);
        break;
      }
    return out.used;
  }
  void begin(uint64_t name) {
    depth_ = 0;
    push(kVariable, name);
  }
  void push(Kind kind, uint64_t what) { steps_[depth_++] = {kind, what}; }
  void pop() { depth_--; }

  /// Writes the text; returns its size, at most `room`.
  uint32_t write(char* to, uint32_t room) const {
    Writer out{to, room};
    for (uint32_t i = 0; i < depth_; i++) {
      const Step& step = steps_[i];
      if (step.kind == kAttribute) out.put(".", 1);
      if (step.kind == kVariable || step.kind == kAttribute) {
        out.name(step.what);
        continue;
      }
      out.put("[", 1);
      if (step.kind == kIndex)
        out.number(step.what);
      else
        out.key(step.what);
      out.put("]", 1);
    }
    return out.used;
  }

 private:
  static constexpr uint32_t kDepth = 3, kLongestName = 80;
  struct Step {
    Kind kind;
    uint64_t what;
  };
  struct Writer {
    char* to;
    uint32_t room, used = 0;

    void put(const char* text, uint32_t nbytes) {
      for (uint32_t i = 0; i < nbytes && used < room; i++) to[used++] = text[i];
    }
    void number(uint64_t value) {
      char digits[20];
      uint32_t at = sizeof digits;
      do digits[--at] = static_cast<char>('0' + value % 10);
      while ((value /= 10) != 0);
      put(digits + at, static_cast<uint32_t>(sizeof digits) - at);
    }
    // Names in Python programs are ASCII; other characters become '?' rather than a wrong name.
    void name(uint64_t object) {
      PythonText text{};
      char bytes[kLongestName];
      if (type_of(object) != python_types().text || !python_text(object, text) || text.kind != 1 || text.nbytes > sizeof bytes ||
          !read_bytes(bytes, text.data, text.nbytes))
        return put("?", 1);
      for (uint32_t i = 0; i < text.nbytes; i++)
        if (bytes[i] < ' ' || bytes[i] > '~') bytes[i] = '?';
      put(bytes, text.nbytes);
    }
    void key(uint64_t object) {
      uint64_t type = type_of(object), size = 0;
      uint32_t digit = 0;
      if (type == python_types().text) {
        put("'", 1);
        name(object);
        return put("'", 1);
      }
      // An int of one digit, not negative: ob_size is 1 (0 for zero) before 3.12, since then bits 3 and up of lv_tag.
      bool small = type == python_types().integer && read_value(size, object + python_objects()->size) &&
                   (python_objects()->minor >= 12 ? size >> 3 <= 1 && (size & 3) != 2 : size <= 1) &&
                   read_value(digit, object + python_objects()->int_digits);
      if (!small) return put("?", 1);
      number(python_objects()->minor < 12 && size == 0 ? 0 : digit);
    }
  };
  Step steps_[kDepth] = {};
  uint32_t depth_ = 0;
};

}  // namespace pytracer::crashsafe
