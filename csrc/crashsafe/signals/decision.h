// How a signal is handled: pure functions over enums. The handler and the interposed functions gather the facts, call these, and act.
// tests/native/test_decisions.py has the tables.
#pragma once

namespace pytracer::crashsafe {

// ---- a signal reaches our handler: what would the kernel have done? ----

/// What the program believes is installed.
enum class Disposition { kDefault, kIgnored, kFunction };

enum class Outcome {
  kIgnore,   ///< nothing happens
  kDefer,    ///< it stays pending until the program unblocks it
  kHandler,  ///< the program's handler runs
  kDefault,  ///< the process ends
};

/// One signal. `fault`: an instruction raised it, so the kernel forces it on the thread; otherwise it was sent. `blocked`: the program
/// blocks it on this thread. `is_init`: the process is PID 1 of its namespace, which no signal with the default action ends unless it
/// is forced.
struct Arrival {
  Disposition disposition;
  bool fault, blocked, is_init;
};

/// kernel/signal.c: force_sig_info_to_task() resets the action of a forced signal that is blocked or ignored; sig_task_ignored() drops
/// signals sent to init.
constexpr Outcome decide(const Arrival& arrival) noexcept {
  if (arrival.fault) return arrival.disposition == Disposition::kFunction && !arrival.blocked ? Outcome::kHandler : Outcome::kDefault;
  if (arrival.blocked) return Outcome::kDefer;
  switch (arrival.disposition) {
    case Disposition::kFunction: return Outcome::kHandler;
    case Disposition::kIgnored: return Outcome::kIgnore;
    case Disposition::kDefault: return arrival.is_init ? Outcome::kIgnore : Outcome::kDefault;
  }
  return Outcome::kDefault;
}

// ---- what is reported of it: the black box has room for one report ----

/// The program's handler that got the signal of the report in the black box.
enum class ReportedHandler {
  kNone,           ///< the report is not of a handled signal, or there is none
  kRunsHere,       ///< it runs on this thread
  kRunsElsewhere,  ///< on another one
  kLeft,           ///< it was left by a jump, or its thread has ended
};

/// Before the program's handler runs.
enum class HandledReport {
  kReport,   ///< a full report
  kLine,     ///< a line beside the report of another thread
  kNothing,  ///< the report is of the handler that this signal interrupts
  kRepair,   ///< the reported signal turns out to be repaired, and so will this one: both are counted
};

/// `may_be_abort`: the process may be inside abort(), which goes on to end it when the handler returns.
constexpr HandledReport report_of_handled(ReportedHandler handler, bool may_be_abort) noexcept {
  switch (handler) {
    case ReportedHandler::kNone: return HandledReport::kReport;
    case ReportedHandler::kRunsHere: return HandledReport::kNothing;
    case ReportedHandler::kRunsElsewhere: return HandledReport::kLine;
    case ReportedHandler::kLeft: return may_be_abort ? HandledReport::kReport : HandledReport::kRepair;
  }
  return HandledReport::kReport;
}

/// Before a signal ends the process.
enum class DeathReport {
  kReport,             ///< a full report
  kReportAfterRepair,  ///< the same; the reported signal turns out to be repaired
  kKeep,               ///< the report is of the handler in which the process dies: it is the cause
  kKeepWithLine,       ///< the same on another thread: a line beside it
};

constexpr DeathReport report_of_death(ReportedHandler handler) noexcept {
  switch (handler) {
    case ReportedHandler::kNone: return DeathReport::kReport;
    case ReportedHandler::kRunsHere: return DeathReport::kKeep;
    case ReportedHandler::kRunsElsewhere: return DeathReport::kKeepWithLine;
    case ReportedHandler::kLeft: return DeathReport::kReportAfterRepair;
  }
  return DeathReport::kReport;
}

// ---- the program's handler of the reported signal returns ----

/// `by_abort`: may_be_abort of the signal. `fault`: an instruction raised it, and will again. `is_default`: the action is the default one
/// by now. `raised`: the signal is pending, since the handler raised it again.
struct HandlerReturn {
  bool by_abort, preloaded, is_default, fault, raised;
};

enum class AfterHandler {
  kAbortGoesOn,  ///< abort() decides
  kRepaired,     ///< the process continues
  kEndsSoon,     ///< the signal is raised once more, to our handler
  kEndsNow,      ///< it is raised once more, without our handler: the last moment to act
};

/// Without preload our handler is what the program's may have restored before it raised the signal: a loop without end.
constexpr AfterHandler after_handler(const HandlerReturn& facts) noexcept {
  if (facts.by_abort) return AfterHandler::kAbortGoesOn;
  bool ends = facts.preloaded ? facts.is_default && (facts.fault || facts.raised) : facts.raised || (facts.is_default && facts.fault);
  if (!ends) return AfterHandler::kRepaired;
  return facts.preloaded ? AfterHandler::kEndsSoon : AfterHandler::kEndsNow;
}

// ---- the program calls sigaction ----

enum class ActionRoute {
  kKernel,       ///< to the kernel as it is
  kTranslated,   ///< to the kernel, with the mask translated (stand_ins.h)
  kTermination,  ///< kept for the program; the kernel gets our function, which notes the sender
  kFault,        ///< kept for the program; the kernel gets our handler
};

/// `handled`: one of kSignals. `termination`: one that asks the process to end. `installed`: our handlers are. `own_process`: not a child
/// between vfork and exec, which shares our memory but not our handlers.
struct ActionCall {
  bool handled, termination, preloaded, installed, own_process;
};

constexpr ActionRoute route_of(const ActionCall& call) noexcept {
  if (!call.handled && !call.termination) return call.preloaded ? ActionRoute::kTranslated : ActionRoute::kKernel;
  if (!call.preloaded || !call.installed || !call.own_process) return ActionRoute::kKernel;
  return call.termination ? ActionRoute::kTermination : ActionRoute::kFault;
}

/// Whether the kernel restarts a system call that our handler interrupts (SA_RESTART): decided before our handler runs. The default
/// action interrupts none.
constexpr bool restarts_calls(Disposition disposition, bool asked) noexcept { return disposition == Disposition::kDefault || asked; }

}  // namespace pytracer::crashsafe
