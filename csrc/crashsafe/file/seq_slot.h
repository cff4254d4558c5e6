// The one way in which items of rings, slots and tables are published: readers in other threads, in the crash handler and in other processes
// see a complete item, or detect that they do not. Nothing waits, and a writer that dies at any point leaves nothing that looks complete.
//
//   writer                                          reader
//   1  number = 0             relaxed               a  n = number         acquire     0: nothing to be read
//      fence                  release               b  bytes
//   2  bytes                                           fence              acquire
//   3  number = n             release               c  number == n?       relaxed     no: changed meanwhile
//
// - The release in 3 with the acquire in a: a reader that sees n sees the bytes that were stored before it.
// - The fence after 1 with the fence before c: a reader that saw a byte of 2 sees, in c, the 0 of 1 or a later number, so never the old number with
//   new bytes. A release store in 1 would not suffice: it keeps earlier accesses from moving down, but none from moving up.
// - 1 itself and c are relaxed: the fences beside them order them.
// - The stores of 2 are plain. Between 1 and 3 a compiler may tear, repeat or invent them as it likes: no reader uses the bytes while the
//   number is 0. The loads of b are relaxed atomics, since what they get may be half of anything.
// - After the process is dead, program order is what counts, and all of it has been stored: 1 to 3 leave number 0 or a whole item.
//
// Duties of the caller: one writer of an item at a time, and another number than the one before. A ring that several threads write is so
// long that no writer can be overtaken by a whole lap while it fills one item; a thread that is stopped for that long would leave an
// item of two halves.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace pytracer::crashsafe {

/// The number alone: for bytes that are no item of their own, and for two members that lie in one word.
template <class Number>
class SeqNumber {
 public:
  explicit SeqNumber(Number& number) noexcept : number_(reinterpret_cast<Word*>(&number)) {}

  /// `hidden`: any value that readers take for "the bytes change".
  void hide(Number hidden = 0) noexcept {
    __atomic_store_n(number_, hidden, __ATOMIC_RELAXED);
    std::atomic_thread_fence(std::memory_order_release);
  }
  void publish(Number number) noexcept { __atomic_store_n(number_, number, __ATOMIC_RELEASE); }

  Number begin_read() const noexcept { return __atomic_load_n(number_, __ATOMIC_ACQUIRE); }
  /// After the bytes were read.
  bool is_still(Number seen) const noexcept {
    std::atomic_thread_fence(std::memory_order_acquire);
    return __atomic_load_n(number_, __ATOMIC_RELAXED) == seen;
  }

 private:
  using Word [[gnu::may_alias]] = Number;
  Word* number_;
};

/// Copies to or from bytes that another thread may be changing.
template <class Item>
void copy_racing(Item& to, const Item& from) noexcept {
  static_assert(std::is_trivially_copyable_v<Item> && sizeof(Item) % sizeof(uint32_t) == 0 && alignof(Item) >= alignof(uint32_t));
  using Word [[gnu::may_alias]] = uint32_t;
  auto* words = reinterpret_cast<Word*>(&to);
  auto* source = reinterpret_cast<const Word*>(&from);
  for (size_t i = 0; i < sizeof(Item) / sizeof(Word); i++) {
    uint32_t word = __atomic_load_n(source + i, __ATOMIC_RELAXED);
    __atomic_store_n(words + i, word, __ATOMIC_RELAXED);
  }
}

/// One of the stores of 2, where they are not made by SeqSlot::write.
template <class Member>
void store_hidden(Member& member, std::type_identity_t<Member> value) noexcept {
#if defined(__SANITIZE_THREAD__)
  __atomic_store_n(&member, value, __ATOMIC_RELAXED);  // see SeqSlot::write
#else
  member = value;
#endif
}

/// An item of blackbox/layout.h, or of the process's own, with its number among its members.
template <class Item, auto kNumber = &Item::order>
class SeqSlot {
 public:
  using Number = std::remove_cvref_t<decltype(std::declval<Item>().*kNumber)>;

  explicit SeqSlot(Item& item) noexcept : item_(item) {}

  /// `change` sees the item as it was, and changes it where it lies; it leaves the number alone.
  template <class Change>
  void write(Number number, Change change) noexcept {
    SeqNumber shown(item_.*kNumber);
    shown.hide();
#if defined(__SANITIZE_THREAD__)
    // ThreadSanitizer does not support fences: for it, the stores of 2 are atomic, too.
    Item changed;
    copy_racing(changed, item_);
    change(changed);
    changed.*kNumber = 0;
    copy_racing(item_, changed);
#else
    change(item_);
#endif
    shown.publish(number);
  }

  /// All of it but the number becomes `value`.
  void assign(Number number, const Item& value) noexcept {
    Item hidden = value;
    hidden.*kNumber = 0;  // else it would be there before the rest
    write(number, [&](Item& item) { item = hidden; });
  }

  /// The number of the item that is now in `copy`; 0 when there is none, or it changed meanwhile.
  Number read(Item& copy) const noexcept {
    SeqNumber shown(item_.*kNumber);
    Number seen = shown.begin_read();
    if (seen == 0) return 0;
    copy_racing(copy, item_);
    return shown.is_still(seen) ? seen : 0;
  }

 private:
  Item& item_;
};

/// Item n, counted from 1, lies at (n - 1) % kItems and has the lower bits of n as its number.
template <class Item, uint32_t kItems, auto kNumber = &Item::order>
class Ring {
 public:
  explicit Ring(Item* items) noexcept : items_(items) {}

  Item& at(uint64_t n) const noexcept { return items_[(n - 1) % kItems]; }

  template <class Change>
  void write(uint64_t n, Change change) const noexcept {
    using Slot = SeqSlot<Item, kNumber>;
    Slot(at(n)).write(static_cast<typename Slot::Number>(n), change);
  }
  void assign(uint64_t n, const Item& value) const noexcept {
    using Slot = SeqSlot<Item, kNumber>;
    Slot(at(n)).assign(static_cast<typename Slot::Number>(n), value);
  }

 private:
  Item* items_;
};

}  // namespace pytracer::crashsafe
