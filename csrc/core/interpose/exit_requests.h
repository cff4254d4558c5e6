// Where a Python program asks for its own end: sys.exit(), `raise SystemExit`, exit(), and what argparse, click and others do by these.
#pragma once

namespace pytracer::core {

/// Once the interpreter has begun to start, with the GIL: from now on the last places are recorded. Does nothing for an unknown CPython.
void watch_exit_requests() noexcept;

}  // namespace pytracer::core
