#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

class FatalException : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

struct Processor {
    std::vector<std::string> pieces;

    const std::string &piece(int index) const
    {
        if (!(index >= 0)) {
            std::fprintf(stderr, "[piece FATAL processor.cpp:%d] CHECK failed: (index) >= (0): \n", __LINE__);
            throw FatalException("CHECK failed: (index) >= (0): ");
        }
        if (!(index < (int)pieces.size())) {
            std::fprintf(stderr, "[piece FATAL processor.cpp:%d] CHECK failed: (index) < (current_size_): \n", __LINE__);
            throw FatalException("CHECK failed: (index) < (current_size_): ");
        }
        return pieces[index];
    }
};

extern "C" Processor *processor_load(const char *path)
{
    auto *sp = new Processor;
    std::FILE *f = std::fopen(path, "r");
    char line[256];
    while (f && std::fgets(line, sizeof line, f)) {
        line[std::strcspn(line, "\n")] = 0;
        sp->pieces.emplace_back(line);
    }
    if (f)
        std::fclose(f);
    return sp;
}

extern "C" void processor_free(Processor *sp) { delete sp; }

extern "C" int processor_size(Processor *sp) { return (int)sp->pieces.size(); }

extern "C" int decode_ids(Processor *sp, const int *ids, int n, int num_special, char *out, int cap)
{
    std::string text;
    for (int i = 0; i < n; i++) {
        const std::string &p = sp->piece(ids[i]);
        if (ids[i] < num_special)
            continue;
        if (!text.empty())
            text += ' ';
        text += p;
    }
    std::snprintf(out, cap, "%s", text.c_str());
    return (int)text.size();
}
