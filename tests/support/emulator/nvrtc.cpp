// NVRTC with a part for the CPU: the machine code is NVRTC's own (WARPSMITH_EMULATED_NVRTC), and behind it comes the same
// program as a shared object, which the emulator's driver runs.
//
//   text, headers ─▶ NVRTC ─────────────────────────────────▶ cubin ┐
//        └─▶ what C++ has no words for is put differently ─▶ $CXX ─▶ "EMULATED", length, object ┴▶ nvrtcGetCUBIN
//
// Headers with inline PTX have twins below headers/, which are found first. Objects and cubins are kept; with
// WARPSMITH_EMULATOR_KEEP texts are, too.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <fcntl.h>
#include <regex.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// Said when this is built: where runtime.h and headers/ are, where libcuda.so is, what is hashed of all of them.
#if !defined(EMULATOR_SOURCES) || !defined(EMULATOR_FOLDER) || !defined(EMULATOR_VERSION)
#error "not said: EMULATOR_SOURCES, EMULATOR_FOLDER, EMULATOR_VERSION"
#endif

extern char** environ;

typedef int Result;

extern "C" {
Result nvrtcCompileProgram(void* program, int count, const char* const* options);
Result nvrtcGetCUBINSize(void* program, size_t* bytes);
Result nvrtcGetCUBIN(void* program, char* out);
Result nvrtcGetProgramLogSize(void* program, size_t* bytes);
Result nvrtcGetProgramLog(void* program, char* out);
}

namespace {

// What is kept.
const char OBJECTS[] = EMULATOR_FOLDER "/objects";

enum { SUCCESS = 0, INVALID_PROGRAM = 4, COMPILATION = 6, INTERNAL = 11 };

struct Program {
  void* real;
  std::string name, text;
  std::vector<std::string> headers, names;
  std::string object, log;
  // What NVRTC made: machine code, and what it said.
  std::string cubin, said;
};

void* function(const char* name) {
  static void* library = [] {
    const char* path = getenv("WARPSMITH_EMULATED_NVRTC");
    // The builtins first: NVRTC asks for them by bare name. They are beside it, as they are beside this library.
    void* opened = path && *path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (!opened) {
      fprintf(stderr, "emulator: WARPSMITH_EMULATED_NVRTC is `%s`: %s\n", path ? path : "", path && *path ? dlerror() : "not set");
      abort();
    }
    return opened;
  }();
  void* found = dlsym(library, name);
  if (!found) {
    fprintf(stderr, "emulator: NVRTC has no %s\n", name);
    abort();
  }
  return found;
}
#define REAL(name) reinterpret_cast<decltype(&name)>(function(#name))

uint64_t mixed(uint64_t hash, const std::string& text) {
  for (unsigned char byte : text) hash = (hash ^ byte) * 0x100000001B3ull;
  return (hash ^ 0xFF) * 0x100000001B3ull;
}
std::string hex(uint64_t number) {
  char text[20];
  snprintf(text, sizeof text, "%016llx", (unsigned long long)number);
  return text;
}

bool make_folders(const std::string& path) {
  for (size_t at = 1; at != std::string::npos; at = path.find('/', at + 1)) {
    if (at == 1) continue;
    mkdir(path.substr(0, at).c_str(), 0700);
  }
  mkdir(path.c_str(), 0700);
  return access(path.c_str(), W_OK) == 0;
}
bool write_file(const std::string& path, const std::string& text) {
  FILE* file = fopen(path.c_str(), "we");
  if (!file) return false;
  const bool is_written = fwrite(text.data(), 1, text.size(), file) == text.size();
  return fclose(file) == 0 && is_written;
}
bool read_file(const std::string& path, std::string& text) {
  FILE* file = fopen(path.c_str(), "re");
  if (!file) return false;
  char buffer[1 << 16];
  text.clear();
  for (size_t some; (some = fread(buffer, 1, sizeof buffer, file)) > 0;) text.append(buffer, some);
  fclose(file);
  return true;
}

// An expression of POSIX: that of C++ looks for its locale in whichever C++ library NVRTC has brought.
class Pattern {
 public:
  explicit Pattern(const char* text) {
    if (regcomp(&compiled_, text, REG_EXTENDED) != 0) abort();
  }
  // The first place behind `from`: all of it, and its parts.
  bool find(const std::string& text, size_t from, regmatch_t (&found)[4]) const {
    if (regexec(&compiled_, text.c_str() + from, 4, found, 0) != 0) return false;
    for (regmatch_t& part : found)
      if (part.rm_so >= 0) part.rm_so += from, part.rm_eo += from;
    return true;
  }

 private:
  regex_t compiled_;
};

// Shared memory, for which C++ has no word. Empty if something is left that is not understood.
bool put_differently(std::string& text, int& counter, std::string& log) {
  if (text.find("__shared__") == std::string::npos) return true;
#define SPACES "[[:space:]]+"
#define ALIGNED "__align__\\([0-9]+\\)" SPACES
#define NAME "([[:alnum:]_]+)[[:space:]]*"
  static const Pattern dynamic("extern" SPACES "__shared__" SPACES "(" ALIGNED ")?([[:alnum:]_:]+)" SPACES NAME
                               "\\[[[:space:]]*\\][[:space:]]*;");
  static const Pattern fixed("__shared__" SPACES "((" ALIGNED ")?[[:alnum:]_:]+)" SPACES NAME);
  static const Pattern extents("^((\\[[^];]*\\])*)[[:space:]]*;");
  std::string out;
  size_t at = 0;
  regmatch_t found[4], behind[4];
  const auto part = [&text](const regmatch_t& of) { return text.substr(of.rm_so, of.rm_eo - of.rm_so); };
  for (; dynamic.find(text, at, found); at = found[0].rm_eo) {
    out.append(text, at, found[0].rm_so - at);
    out += "\n#define " + part(found[3]) + " (reinterpret_cast<" + part(found[2]) + "*>(emu_current->block->dynamic))\n";
  }
  text = out.append(text, at, std::string::npos);
  out.clear();
  for (at = 0; fixed.find(text, at, found); at = behind[0].rm_eo) {
    if (!extents.find(text, found[0].rm_eo, behind)) break;
    const std::string type = "emu_shared_" + std::to_string(counter++), name = part(found[3]);
    out.append(text, at, found[0].rm_so - at);
    out += "using " + type + " = " + part(found[1]) + part(behind[1]) + "; " + type + "& " + name + " = *reinterpret_cast<" +
           type + "*>(emu_static_shared(sizeof(" + type + "), alignof(" + type + "), \"" + name + " " + type + "\"));";
  }
  text = out.append(text, at, std::string::npos);
  if (text.find("__shared__") == std::string::npos) return true;
  log += "emulator: shared memory that is declared in a way that is not understood\n";
  return false;
}

// Names of the kernels: what stands before the parameters, behind __global__.
std::vector<std::string> kernels_of(const std::string& text) {
  std::vector<std::string> names;
  for (size_t at = text.find("__global__"); at != std::string::npos; at = text.find("__global__", at + 1)) {
    size_t open = text.find('(', at);
    const size_t bounds = text.find("__launch_bounds__", at);
    if (bounds != std::string::npos && bounds < open) {
      int depth = 0;
      size_t end = open;
      for (; end < text.size(); end++) {
        depth += text[end] == '(';
        depth -= text[end] == ')';
        if (depth == 0) break;
      }
      open = text.find('(', end);
    }
    if (open == std::string::npos) break;
    size_t end = open;
    while (end > 0 && isspace(static_cast<unsigned char>(text[end - 1]))) end--;
    size_t begin = end;
    while (begin > 0 && (isalnum(static_cast<unsigned char>(text[begin - 1])) || text[begin - 1] == '_')) begin--;
    names.push_back(text.substr(begin, end - begin));
  }
  return names;
}

std::string compiler() {
  const char* named = getenv("CXX");
  return named && *named ? named : "c++";
}

// What a file is called until it is whole: nobody else's.
std::string unfinished_name(const std::string& path) {
  static unsigned number;
  return path + "." + std::to_string(getpid()) + "." + std::to_string(__atomic_fetch_add(&number, 1, __ATOMIC_SEQ_CST));
}

uint64_t hash_of_headers(const Program& program) {
  uint64_t hash = 0xCBF29CE484222325ull;
  for (size_t i = 0; i < program.headers.size(); i++) hash = mixed(mixed(hash, program.names[i]), program.headers[i]);
  return hash;
}

// Headers as files: written once for each list of them.
std::string headers_in(const std::string& folder, const Program& program, std::string& log) {
  const std::string path = folder + "/headers-" + hex(hash_of_headers(program));
  static std::mutex alone;
  std::lock_guard<std::mutex> guard(alone);
  if (access(path.c_str(), R_OK) == 0) return path;
  const std::string unfinished = path + "." + std::to_string(getpid());
  int counter = 1000;
  for (size_t i = 0; i < program.headers.size(); i++) {
    const std::string file = unfinished + "/" + program.names[i];
    std::string text = program.headers[i];
    if (!put_differently(text, counter, log)) return "";
    if (!make_folders(file.substr(0, file.rfind('/'))) || !write_file(file, text)) {
      log += "emulator: " + file + " cannot be written\n";
      return "";
    }
  }
  make_folders(unfinished);
  if (rename(unfinished.c_str(), path.c_str()) != 0 && access(path.c_str(), R_OK) != 0) return "";
  return path;
}

struct Started {
  pid_t process = 0;
  std::string stem, kept;
};

// Begins to compile for the CPU, unless that has been done before.
bool start(Program& program, int arch, const std::vector<std::string>& defines, Started& started) {
  const std::string folder = OBJECTS;
  if (!make_folders(folder)) {
    program.log += "emulator: " + folder + " cannot be written to\n";
    return false;
  }
  std::string text = program.text;
  int counter = 0;
  if (!put_differently(text, counter, program.log)) return false;
  const std::string headers = headers_in(folder, program, program.log);
  if (headers.empty()) return false;
  text = "#include \"runtime.h\"\n#line 1 \"" + program.name + "\"\n" + text + "\n";
  for (const std::string& kernel : kernels_of(program.text))
    text += "extern \"C\" __attribute__((visibility(\"default\"))) const EmuEntry emu_entry_" + kernel + " = EmuKernel<" + kernel +
            ">::entry(\"" + kernel + "\");\n";

  // Hidden but for the entries: what is inline would be one for all kernels that are loaded, and call what is unloaded with another.
  std::vector<std::string> arguments = {compiler(), "-x", "c++", "-std=c++17", "-O1", "-march=native", "-w", "-fPIC", "-shared",
                                        "-ffp-contract=off", "-fno-strict-aliasing", "-fno-exceptions", "-fno-rtti",
                                        "-fno-asynchronous-unwind-tables", "-fno-stack-protector", "-fno-math-errno",
                                        "-fno-threadsafe-statics", "-fsanitize=alignment", "-fvisibility=hidden",
                                        "-fsanitize-undefined-trap-on-error", "-D__CUDA_ARCH__=" + std::to_string(arch)};
  arguments.insert(arguments.end(), defines.begin(), defines.end());
  for (const std::string& path : {std::string(EMULATOR_SOURCES "/headers"), headers, std::string(EMULATOR_SOURCES)}) {
    arguments.push_back("-I");
    arguments.push_back(path);
  }
  uint64_t hash = mixed(mixed(0xCBF29CE484222325ull, EMULATOR_VERSION), text);
  for (const std::string& argument : arguments) hash = mixed(hash, argument);
  started.kept = folder + "/" + hex(hash) + ".so";
  if (access(started.kept.c_str(), R_OK) == 0) return true;

  started.stem = unfinished_name(started.kept);
  if (!write_file(started.stem + ".cpp", text)) {
    program.log += "emulator: " + started.stem + ".cpp cannot be written\n";
    return false;
  }
  for (const char* last : {"-o", ".so", ".cpp"})
    arguments.push_back(last[0] == '.' ? started.stem + last : std::string(last));
  arguments.insert(arguments.end(), {"-x", "none", EMULATOR_FOLDER "/libcuda.so"});
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(&argument[0]);
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 2, (started.stem + ".log").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const int failed = posix_spawnp(&started.process, pointers[0], &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed) {
    started.process = 0;
    program.log += "emulator: " + compiler() + " cannot be started: " + strerror(failed) + "\n";
    return false;
  }
  return true;
}

bool finish(Program& program, const Started& started) {
  if (started.process) {
    int status = 0;
    while (waitpid(started.process, &status, 0) < 0 && errno == EINTR) {}
    std::string log;
    read_file(started.stem + ".log", log);
    unlink((started.stem + ".log").c_str());
    const bool is_kept = getenv("WARPSMITH_EMULATOR_KEEP") != nullptr;
    if (!is_kept) unlink((started.stem + ".cpp").c_str());
    if (status != 0) {
      program.log += "emulator: the host's compiler refused the program:\n" + log.substr(0, 4000) + "\n";
      return false;
    }
    if (rename((started.stem + ".so").c_str(), started.kept.c_str()) != 0) {
      program.log += "emulator: " + started.kept + " cannot be written\n";
      return false;
    }
  }
  if (read_file(started.kept, program.object)) return true;
  program.log += "emulator: " + started.kept + " cannot be read\n";
  return false;
}

// By NVRTC, and what it says of it.
Result compile(Program& program, int count, const char* const* options) {
  const Result code = REAL(nvrtcCompileProgram)(program.real, count, options);
  size_t bytes = 0;
  if (REAL(nvrtcGetProgramLogSize)(program.real, &bytes) == SUCCESS) {
    program.said.resize(bytes);
    REAL(nvrtcGetProgramLog)(program.real, &program.said[0]);
  }
  return code;
}

// Where a cubin is kept: by all that NVRTC is given, and by its version, which is one of this library's.
std::string kept_cubin(const Program& program, int count, const char* const* options) {
  uint64_t hash = mixed(mixed(mixed(hash_of_headers(program), EMULATOR_VERSION), program.name), program.text);
  for (int i = 0; i < count; i++) hash = mixed(hash, options[i]);
  return std::string(OBJECTS) + "/" + hex(hash) + ".cubin";
}

// Machine code, by NVRTC or from an earlier time. A file is the length of what was said, that, and the cubin.
Result make_cubin(Program& program, int count, const char* const* options) {
  const std::string path = kept_cubin(program, count, options);
  std::string kept;
  uint64_t length = 0;
  if (read_file(path, kept) && kept.size() >= sizeof length) {
    memcpy(&length, kept.data(), sizeof length);
    if (length <= kept.size() - sizeof length) {
      program.said = kept.substr(sizeof length, length);
      program.cubin = kept.substr(sizeof length + length);
      return SUCCESS;
    }
  }
  const Result code = compile(program, count, options);
  if (code != SUCCESS) return code;
  size_t bytes = 0;
  REAL(nvrtcGetCUBINSize)(program.real, &bytes);
  program.cubin.resize(bytes);
  REAL(nvrtcGetCUBIN)(program.real, &program.cubin[0]);
  length = program.said.size();
  kept.assign(reinterpret_cast<const char*>(&length), sizeof length);
  // Where it cannot be written, the next one makes it anew.
  const std::string unfinished = unfinished_name(path);
  if (write_file(unfinished, kept + program.said + program.cubin)) rename(unfinished.c_str(), path.c_str());
  return SUCCESS;
}

}  // namespace

extern "C" {

const char* nvrtcGetErrorString(Result code) { return REAL(nvrtcGetErrorString)(code); }
Result nvrtcVersion(int* major, int* minor) { return REAL(nvrtcVersion)(major, minor); }
Result nvrtcGetNumSupportedArchs(int* count) { return REAL(nvrtcGetNumSupportedArchs)(count); }
Result nvrtcGetSupportedArchs(int* numbers) { return REAL(nvrtcGetSupportedArchs)(numbers); }

Result nvrtcCreateProgram(void** out, const char* text, const char* name, int count, const char* const* headers,
                          const char* const* names) {
  Program* program = new Program();
  program->text = text;
  program->name = name ? name : "program.cu";
  for (int i = 0; i < count; i++) {
    program->headers.push_back(headers[i]);
    program->names.push_back(names[i]);
  }
  const Result code = REAL(nvrtcCreateProgram)(&program->real, text, name, count, headers, names);
  if (code != SUCCESS) {
    delete program;
    return code;
  }
  *out = program;
  return SUCCESS;
}

Result nvrtcDestroyProgram(void** out) {
  Program* program = static_cast<Program*>(*out);
  const Result code = REAL(nvrtcDestroyProgram)(&program->real);
  delete program;
  *out = nullptr;
  return code;
}

Result nvrtcCompileProgram(void* which, int count, const char* const* options) {
  Program* program = static_cast<Program*>(which);
  for (std::string* made : {&program->object, &program->log, &program->cubin, &program->said}) made->clear();
  int arch = 0;
  bool is_machine = false;
  std::vector<std::string> defines;
  for (int i = 0; i < count; i++) {
    const std::string option = options[i];
    int number = 0;
    if (sscanf(options[i], "--gpu-architecture=sm_%d", &number) == 1) arch = number * 10, is_machine = true;
    if (option.compare(0, 2, "-D") == 0) defines.push_back(option);
    if (option.compare(0, 15, "--define-macro=") == 0) defines.push_back("-D" + option.substr(15));
  }
  Started started;
  // PTX has no place for it.
  const bool is_started = !is_machine || start(*program, arch, defines, started);
  const Result code = is_machine ? make_cubin(*program, count, options) : compile(*program, count, options);
  const bool is_finished = is_started && (!is_machine || finish(*program, started));
  return code != SUCCESS ? code : is_finished ? SUCCESS : COMPILATION;
}

Result nvrtcGetPTXSize(void* program, size_t* bytes) { return REAL(nvrtcGetPTXSize)(static_cast<Program*>(program)->real, bytes); }
Result nvrtcGetPTX(void* program, char* out) { return REAL(nvrtcGetPTX)(static_cast<Program*>(program)->real, out); }

Result nvrtcGetCUBINSize(void* which, size_t* bytes) {
  const Program* program = static_cast<Program*>(which);
  *bytes = program->cubin.empty() ? 0 : program->cubin.size() + 16 + program->object.size();
  return SUCCESS;
}
Result nvrtcGetCUBIN(void* which, char* out) {
  const Program* program = static_cast<Program*>(which);
  const uint64_t length = program->object.size();
  out = static_cast<char*>(mempcpy(out, program->cubin.data(), program->cubin.size()));
  memcpy(out, "EMULATED", 8);
  memcpy(out + 8, &length, 8);
  memcpy(out + 16, program->object.data(), length);
  return SUCCESS;
}

Result nvrtcGetProgramLogSize(void* which, size_t* bytes) {
  const Program* program = static_cast<Program*>(which);
  *bytes = program->log.size() + program->said.size();
  return SUCCESS;
}
// The own part first: the other ends with its NUL.
Result nvrtcGetProgramLog(void* which, char* out) {
  const Program* program = static_cast<Program*>(which);
  out = static_cast<char*>(mempcpy(out, program->log.data(), program->log.size()));
  memcpy(out, program->said.data(), program->said.size());
  return SUCCESS;
}

}  // extern "C"
