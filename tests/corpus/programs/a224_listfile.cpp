#include <fstream>
#include <sstream>
#include <string>
#include <vector>

struct Utterance {
    std::string id;
    std::string audio;
    double duration;
    std::string transcript;
};

struct Manifest {
    std::vector<Utterance> items;
};

static std::vector<std::string> split_columns(const std::string &line)
{
    std::istringstream in(line);
    std::vector<std::string> columns;
    std::string word;
    while (in >> word)
        columns.push_back(word);
    return columns;
}

static Utterance parse_line(const std::string &line)
{
    const std::vector<std::string> columns = split_columns(line);
    Utterance u;
    u.id = columns.at(0);
    u.audio = columns.at(1);
    u.duration = std::stod(columns.at(2));
    for (std::size_t i = 3; i < columns.size(); ++i)
        u.transcript += (i > 3 ? " " : "") + columns[i];
    return u;
}

extern "C" {

void *manifest_load(const char *path)
{
    std::ifstream file(path);
    if (!file)
        return nullptr;
    Manifest *manifest = new Manifest;
    std::string line;
    while (std::getline(file, line))
        if (!line.empty())
            manifest->items.push_back(parse_line(line));
    return manifest;
}

long manifest_size(void *handle) { return static_cast<Manifest *>(handle)->items.size(); }
const char *manifest_audio(void *handle, long i) { return static_cast<Manifest *>(handle)->items[i].audio.c_str(); }
double manifest_duration(void *handle, long i) { return static_cast<Manifest *>(handle)->items[i].duration; }
const char *manifest_text(void *handle, long i) { return static_cast<Manifest *>(handle)->items[i].transcript.c_str(); }
void manifest_free(void *handle) { delete static_cast<Manifest *>(handle); }

}
