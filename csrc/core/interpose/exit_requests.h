// Where a Python program asks for its own end: sys.exit(), `raise SystemExit`, exit(), and what argparse, click and others do by these.
#pragma once

namespace pytracer::core {

/// With the GIL, once the interpreter has begun to start: from now on the places are recorded. Does nothing for an unknown CPython, and the
/// second time.
void watch_exit_requests() noexcept;

}  // namespace pytracer::core
