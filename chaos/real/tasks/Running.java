/** Running says that it runs, and then waits until it is ended. Running.class is made by: javac --release 8 Running.java */
public class Running {
    public static void main(String[] args) throws InterruptedException {
        System.out.println("running");
        Thread.sleep(Long.MAX_VALUE);
    }
}
