// A method that uses nearly all CPU time, for two minutes at most.
public class Hot {
    static long hotInJava(int n) {
        long sum = 0;
        for (int i = 0; i < n; i++) sum = (sum * 31 + i) % 1000003;
        return sum;
    }

    public static void main(String[] arguments) {
        long end = System.currentTimeMillis() + 120000;
        long total = 0;
        while (System.currentTimeMillis() < end) total += hotInJava(1000000);
        System.out.println(total);
    }
}
