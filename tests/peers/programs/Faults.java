import java.lang.reflect.Field;

/** Faults that the virtual machine turns into exceptions, and real ones. */
public class Faults {
  int value;

  static int nullChecks(Faults object) {
    try {
      return object.value;  // compiled to a load without a check: SIGSEGV
    } catch (NullPointerException expected) {
      return -1;
    }
  }

  static int deep(int n) {
    return deep(n + 1) + 1;
  }

  static void crash() throws Exception {
    Field field = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
    field.setAccessible(true);
    ((sun.misc.Unsafe) field.get(null)).putAddress(0, 1);
  }

  static int work() {
    int sum = 0;
    Faults there = new Faults();
    for (int i = 0; i < 300000; i++) sum += nullChecks(i % 1000 == 0 ? null : there);
    return sum;
  }

  public static void main(String[] words) throws Exception {
    String mode = words[0];
    if (mode.equals("null-checks")) System.out.println(work());
    if (mode.equals("stack-overflow")) {
      int caught = 0;
      for (int i = 0; i < 20; i++) {
        try {
          deep(0);
        } catch (StackOverflowError expected) {
          caught++;
        }
      }
      System.out.println(caught);
    }
    if (mode.equals("threads")) {
      Thread[] threads = new Thread[8];
      int[] sums = new int[8];
      for (int i = 0; i < 8; i++) {
        int id = i;
        threads[i] = new Thread(() -> sums[id] = work());
        threads[i].start();
      }
      for (int i = 0; i < 50; i++) System.gc();  // safepoints, while the threads fault
      for (Thread thread : threads) thread.join();
      for (int sum : sums) System.out.println(sum);
    }
    if (mode.equals("crash")) crash();
    if (mode.equals("crash-in-thread")) {
      Thread thread = new Thread(() -> {
        try {
          crash();
        } catch (Exception impossible) {
          System.exit(9);
        }
      });
      thread.start();
      thread.join();
    }
    if (mode.equals("abort")) {
      Runtime.getRuntime().halt(kill());
    }
    if (mode.equals("exit")) System.exit(5);
  }

  static int kill() throws Exception {
    new ProcessBuilder("kill", "-SEGV", Long.toString(ProcessHandle.current().pid())).start().waitFor();
    Thread.sleep(10000);
    return 8;
  }
}
