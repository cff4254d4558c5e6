// Function for function the same as pytracer/blackbox/redaction.py: read that one first. Preceding text that it examines is copied,
// because the words are rewritten in place.
#include "crashsafe/text/redact.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

namespace pytracer::crashsafe {
namespace {

struct Word {
  const char* text;
  size_t nbytes;
};
struct Shape {
  Word prefix;
  char kind;
  size_t least;
};
struct ProgramOption {
  Word program;
  char letter;
};

#include "crashsafe/text/secret_words.inc"

enum class Judgement { kNo, kYes, kIfHex };
constexpr size_t kStretch = 16, kFar = 1024;

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alnum(char c) { return is_lower(c) || is_upper(c) || is_digit(c); }
bool is_name(char c) { return is_alnum(c) || c == '_' || c == '-' || c == '.'; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool is_quote(char c) { return c == '"' || c == '\'' || c == '`'; }
bool is_end(char c) { return is_blank(c) || is_quote(c) || c == '&' || c == ',' || c == ';' || c == ')' || c == '}' || c == ']'; }
bool is_bearer(char c) { return is_name(c) || c == '~' || c == '+' || c == '/' || c == '='; }
bool is_opening(char c) { return c == '\\' || c == '\'' || c == '"'; }
bool is_closing(char c) { return is_opening(c) || c == ']'; }
bool is_separator(char c) { return c == '=' || c == ':'; }
bool is_leading(char c) { return c == '+' || c == '~' || c == '\'' || c == '"'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool is_dash(char c) { return c == '-'; }
bool is_backslash(char c) { return c == '\\'; }
bool is_token(char c) { return is_alnum(c) || c == '-' || c == '_'; }
bool is_lower_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); }
bool is_upper_or_digit(char c) { return is_upper(c) || is_digit(c); }
char lower(char c) { return is_upper(c) ? static_cast<char>(c | 0x20) : c; }

using Class = bool (*)(char);

Class class_of(char kind) { return kind == 'A' ? is_alnum : kind == 'X' ? is_lower_hex : kind == 'U' ? is_upper_or_digit : is_token; }

// One word of a command line, with a copy of what precedes the current position: the bytes there may be overwritten.
struct Text {
  const char* data;
  size_t nbytes;
  char before = 0;
  bool leading = true;  // nothing but quotes and signs so far

  char at(size_t position) const { return position < nbytes ? data[position] : '\0'; }
  size_t run(size_t from, Class in, size_t most = SIZE_MAX) const {
    size_t end = most < nbytes - (from < nbytes ? from : nbytes) ? from + most : nbytes;
    while (from < end && in(data[from])) from++;
    return from;
  }
  bool has(size_t from, Word word, bool any_case = false) const {
    if (from > nbytes || nbytes - from < word.nbytes) return false;
    for (size_t i = 0; i < word.nbytes; i++)
      if ((any_case ? lower(data[from + i]) : data[from + i]) != word.text[i]) return false;
    return true;
  }
};
struct Span {
  size_t begin, end;
  bool found() const { return end > begin; }
};
constexpr Span kNone{0, 0};

constexpr Word word(const char* text) { return {text, __builtin_strlen(text)}; }

bool same(const char* data, size_t begin, size_t end, Word known) {
  if (end - begin != known.nbytes) return false;
  for (size_t i = 0; i < known.nbytes; i++)
    if (lower(data[begin + i]) != known.text[i]) return false;
  return true;
}

template <size_t N>
bool one_of(const char* data, size_t begin, size_t end, const Word (&known)[N]) {
  for (const Word& item : known)
    if (same(data, begin, end, item)) return true;
  return false;
}

Span word_before(const char* name, size_t nbytes, size_t end) {
  while (end > 0 && !is_alnum(name[end - 1])) end--;
  size_t begin = end;
  while (begin > 0 && is_alnum(name[begin - 1])) {
    if (begin < end && is_upper(name[begin]) && (!is_upper(name[begin - 1]) || (begin + 1 < nbytes && is_lower(name[begin + 1])))) break;
    begin--;
  }
  return {begin, end};
}

Judgement judge(const char* name, size_t nbytes) {
  size_t end = nbytes;
  while (end > 0 && (is_digit(name[end - 1]) || !is_alnum(name[end - 1]))) end--;
  Span last = word_before(name, nbytes, end), above = word_before(name, nbytes, last.begin);
  if (one_of(name, last.begin, last.end, kSecretWords)) return Judgement::kYes;
  for (const Word& ending : kSecretEnds)
    if (last.end - last.begin >= ending.nbytes && same(name, last.end - ending.nbytes, last.end, ending)) return Judgement::kYes;
  auto yes_if = [](bool condition) { return condition ? Judgement::kYes : Judgement::kNo; };
  auto is = [&](const Span& span, const char* text) { return same(name, span.begin, span.end, word(text)); };
  if (is(last, "token")) return yes_if(!one_of(name, above.begin, above.end, kPlainTokens));
  if (is(last, "key")) return one_of(name, above.begin, above.end, kSecretKeys) ? Judgement::kYes : Judgement::kIfHex;
  if (is(last, "pass")) return yes_if(!above.found() || one_of(name, above.begin, above.end, kSecretPasses));
  if (is(last, "pwd")) return yes_if(above.found());
  return yes_if(is(last, "string") && is(above, "connection"));
}

bool is_switch(const Text& text, size_t begin) {
  begin = text.run(begin, is_dash);
  return one_of(text.data, begin, text.run(begin, is_alnum), kSwitches);
}

bool is_hex_key(const Text& text) { return text.nbytes >= kHexKeyDigits && text.run(0, is_hex) == text.nbytes; }

constexpr size_t kNowhere = SIZE_MAX;

size_t begin_of_value(const Text& text, size_t at, size_t after, bool line) {
  size_t to = text.run(after, is_closing), spaced = text.run(to, is_blank);
  if (spaced < text.nbytes && is_separator(text.data[spaced])) {
    size_t behind = text.run(spaced, is_separator);
    if (behind == spaced + 1 && text.data[spaced] == ':' && text.has(behind, word("//"))) return kNowhere;
    return text.run(behind, is_blank);
  }
  if (text.data[at] != '-' || is_switch({text.data, after}, at)) return kNowhere;
  if (to > after && text.at(spaced) == ',') {
    spaced = text.run(spaced + 1, is_blank);
    return spaced < text.nbytes && is_opening(text.data[spaced]) ? spaced : kNowhere;
  }
  return line && to == after && spaced > to && !text.has(spaced, word("--")) ? spaced : kNowhere;
}

size_t without_scheme(const Text& text, size_t begin) {
  for (const Word& scheme : kSchemes)
    if (text.has(begin, scheme, true) && text.at(begin + scheme.nbytes) == ' ') return begin + scheme.nbytes + 1;
  return begin;
}

Span extent(const Text& text, size_t begin) {
  size_t quote = text.run(begin, is_backslash);
  if (quote < text.nbytes && is_quote(text.data[quote])) {
    bool escaped = quote > begin;
    size_t end = quote + 1;
    while (end < text.nbytes && !(text.data[end] == text.data[quote] && (escaped || text.data[end - 1] != '\\'))) end++;
    while (escaped && end > quote + 1 && text.data[end - 1] == '\\') end--;
    return {without_scheme(text, quote + 1), end};
  }
  if (text.data[begin] == '[' || text.data[begin] == '{') return {begin, text.nbytes};
  begin = without_scheme(text, begin);
  size_t end = begin;
  while (end < text.nbytes && !is_end(text.data[end])) end++;
  return {begin, end};
}

Span value_of_name(const Text& text, size_t at, bool line) {
  size_t after = text.run(at, is_name);
  Judgement secret = judge(text.data + at, after - at);
  bool signature = after - at == 3 && memcmp(text.data + at, "sig", 3) == 0 && (text.before == '?' || text.before == '&');
  if (secret == Judgement::kNo && !signature) return kNone;
  size_t begin = begin_of_value(text, at, after, line);
  if (begin >= text.nbytes) return kNone;
  if (secret == Judgement::kIfHex) {
    begin = text.run(begin, is_opening);
    size_t end = text.run(begin, is_hex);
    return end - begin >= kHexKeyDigits && !is_alnum(text.at(end)) ? Span{begin, end} : kNone;
  }
  return text.leading && !line ? Span{begin, text.nbytes} : extent(text, begin);
}

Span password_of_url(const Text& text, size_t at) {
  size_t begin = at + 3, colon = 0, last = 0;
  size_t limit = text.nbytes - begin < kFar ? text.nbytes : begin + kFar;
  for (size_t i = begin; i < limit && !is_blank(text.data[i]) && !is_quote(text.data[i]); i++) {
    char c = text.data[i];
    if ((c == '/' || c == '?' || c == '#') && (colon == 0 || text.run(colon + 1, is_digit) == i)) break;
    if (c == ':' && colon == 0 && text.data[begin] != '[')
      colon = i;
    else if (c == '@' && colon != 0)
      last = i;
  }
  return last > colon + 1 ? Span{colon + 1, last} : kNone;
}

bool looks_random(const Text& text, size_t begin, size_t end) {
  size_t longest = 0, current = 0;
  bool digit = false;
  for (size_t i = begin; i < end; i++) {
    digit = digit || is_digit(text.data[i]);
    current = is_alnum(text.data[i]) ? current + 1 : 0;
    if (current > longest) longest = current;
  }
  return digit && longest >= kStretch;
}

// Secrets that are recognized by their shape, by first character: most characters begin none. Those of one character are adjacent, from
// `first` on.
constexpr size_t kShapes = std::size(kTokenShapes);
struct Beginning {
  bool any = false;
  uint8_t first = kShapes;
};
constexpr auto kBeginnings = [] {
  std::array<Beginning, 256> beginnings{};
  for (char c : {':', '-', 'b', 'B'}) beginnings[static_cast<unsigned char>(c)].any = true;
  for (size_t i = kShapes; i-- > 0;) beginnings[static_cast<unsigned char>(kTokenShapes[i].prefix.text[0])] = {true, static_cast<uint8_t>(i)};
  return beginnings;
}();
static_assert(std::is_sorted(std::begin(kTokenShapes), std::end(kTokenShapes),
                             [](const Shape& a, const Shape& b) { return a.prefix.text[0] < b.prefix.text[0]; }));

size_t end_of_shape(const Text& text, size_t at, bool inside) {
  for (size_t i = kBeginnings[static_cast<unsigned char>(text.data[at])].first; i < kShapes; i++) {
    const Shape& shape = kTokenShapes[i];
    if (shape.prefix.text[0] != text.data[at]) break;
    if (!text.has(at, shape.prefix)) continue;
    char ending = shape.prefix.text[shape.prefix.nbytes - 1];
    if (inside && (shape.prefix.nbytes < 4 || (ending != '_' && ending != '-'))) continue;
    size_t begin = at + shape.prefix.nbytes, end = text.run(begin, class_of(shape.kind), kFar);
    if (end - begin < shape.least || (shape.kind == 'S' && !looks_random(text, begin, end))) continue;
    if (shape.kind == 'J' && text.at(end) != '.') continue;
    return text.run(end, shape.kind == 'J' ? is_name : class_of(shape.kind));
  }
  return 0;
}

Span secret_at(const Text& text, size_t at, bool line) {
  bool begins = kBeginnings[static_cast<unsigned char>(text.data[at])].any;
  if (!begins && (is_name(text.before) || !is_name(text.data[at]))) return kNone;
  if (text.has(at, word("://"))) return password_of_url(text, at);
  if (text.has(at, word("-----BEGIN "))) {
    constexpr Word kKey = word("PRIVATE KEY-----");
    for (size_t head = at; head + kKey.nbytes <= at + 48; head++)
      if (text.has(head, kKey)) return {head + kKey.nbytes, text.nbytes};
    return kNone;
  }
  bool inside = is_alnum(text.before);
  if (!is_name(text.before) && is_name(text.data[at])) {
    Span value = value_of_name(text, at, line);
    if (value.found()) return value;
  }
  if (!begins) return kNone;
  size_t end = end_of_shape(text, at, inside);
  if (end != 0) return {at, end};
  if (!inside && text.has(at, word("bearer "), true)) {
    end = text.run(at + 7, is_bearer);
    if (end - (at + 7) >= kBearerCharacters) return {at + 7, end};
  }
  return kNone;
}

// Writes what is kept of the words behind what was written before; `to` never overtakes what is still to be read.
struct Output {
  char* to;
  uint32_t count = 0;

  void keep(const char* from, size_t nbytes) {
    for (size_t i = 0; i < nbytes; i++) to[i] = from[i];
    to += nbytes;
  }
  void mask(const char* secret, size_t nbytes) {
    size_t stars = nbytes < kMask.nbytes ? nbytes : kMask.nbytes;
    bool masked = nbytes == stars;
    for (size_t i = 0; i < stars; i++) masked = masked && secret[i] == kMask.text[i];
    count += !masked;
    keep(kMask.text, stars);
  }
};

void redact_text(Text text, bool line, Output& out) {
  size_t at = 0;
  while (at < text.nbytes) {
    Span secret = secret_at(text, at, line);
    size_t next = secret.found() ? secret.end : at + 1;
    for (size_t i = at; i < next; i++) text.leading = text.leading && is_leading(text.data[i]);
    text.before = text.data[next - 1];
    out.keep(text.data + at, (secret.found() ? secret.begin : next) - at);
    if (secret.found()) out.mask(text.data + secret.begin, secret.end - secret.begin);
    at = next;
  }
}

Judgement asks_for_secret(const Text& option, char letter) {
  if (option.nbytes < 2 || option.data[0] != '-') return Judgement::kNo;
  if (letter != 0 && option.nbytes == 2 && option.data[1] == letter) return Judgement::kYes;
  return option.run(0, is_name) < option.nbytes || is_switch(option, 0) ? Judgement::kNo : judge(option.data, option.nbytes);
}

bool takes_script(const Text& option) {
  return option.nbytes >= 2 && option.nbytes <= 6 && option.data[0] == '-' && option.data[option.nbytes - 1] == 'c' &&
         option.run(1, is_alnum) == option.nbytes;
}

char program_letter(const Text& program) {
  size_t begin = program.nbytes;
  while (begin > 0 && program.data[begin - 1] != '/') begin--;
  for (const ProgramOption& option : kProgramOptions)
    if (program.nbytes - begin == option.program.nbytes && program.has(begin, option.program)) return option.letter;
  return 0;
}

}  // namespace

Redacted redact_words(char* words, size_t nbytes) noexcept {
  Output out{words};
  auto expected = Judgement::kNo;
  bool script = false, first = true;
  char letter = 0;
  for (size_t begin = 0; begin < nbytes;) {
    size_t end = begin;
    while (end < nbytes && words[end] != 0) end++;
    Text text{words + begin, end - begin};
    if (first) letter = program_letter(text);
    first = false;
    bool wanted = expected != Judgement::kNo && text.nbytes != 0 && !text.has(0, word("--"));
    Judgement next = Judgement::kNo;
    bool next_script = false;
    if (wanted && (expected == Judgement::kYes || is_hex_key(text))) {
      out.mask(text.data, text.nbytes);
    } else if (letter != 0 && text.nbytes > 2 && text.data[0] == '-' && text.data[1] == letter) {
      out.keep(text.data, 2);
      out.mask(text.data + 2, text.nbytes - 2);
    } else {
      next = script ? Judgement::kNo : asks_for_secret(text, letter);
      next_script = takes_script(text);
      redact_text(text, script, out);
    }
    expected = next;
    script = next_script;
    if (end < nbytes) *out.to++ = 0;
    begin = end + 1;
  }
  return {static_cast<size_t>(out.to - words), out.count};
}

}  // namespace pytracer::crashsafe
