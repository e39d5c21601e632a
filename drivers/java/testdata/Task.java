import java.io.FileOutputStream;

// Task does what the conformance suite of drivers asks of a task. Compile it with javac -source 8 -target 8.
public class Task {
    public static void main(String[] args) throws Exception {
        long run = 0;
        int exit = 0;
        for (String arg : args) {
            String value = arg.substring(arg.indexOf('=') + 1);
            switch (arg.substring(0, arg.indexOf('='))) {
                case "ignore":
                    sun.misc.Signal.handle(new sun.misc.Signal(value), sun.misc.SignalHandler.SIG_IGN);
                    break;
                case "print":
                    System.out.println(value);
                    break;
                case "error":
                    System.err.println(value);
                    break;
                case "run":
                    run = Long.parseLong(value);
                    break;
                case "exit":
                    exit = Integer.parseInt(value);
                    break;
            }
        }
        try (FileOutputStream starts = new FileOutputStream("starts", true)) {
            starts.write("started\n".getBytes("UTF-8"));
        }
        Thread.sleep(run < 0 ? Long.MAX_VALUE : run);
        System.exit(exit);
    }
}
