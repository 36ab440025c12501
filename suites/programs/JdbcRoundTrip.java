import java.sql.*;
import java.util.Random;

/**
 * Fills a database through JDBC and reads it back.
 * JdbcRoundTrip URL fill|check|acknowledge ROWS
 * fill and check print how many rows there are and a sum over all of them in order, which is the same on every run.
 * acknowledge inserts for ever, one row a transaction, and prints the number of each row that is committed.
 */
public final class JdbcRoundTrip {
    private static String valueOf(int key, int version) {
        Random random = new Random(key * 31L + version);
        StringBuilder text = new StringBuilder();
        for (int i = 20 + random.nextInt(300); i > 0; i--) text.append((char) ('a' + random.nextInt(26)));
        return text.toString();
    }

    private static void fill(Connection db, int rows) throws SQLException {
        try (Statement s = db.createStatement()) {
            s.execute("CREATE TABLE t (k INT PRIMARY KEY, v VARCHAR(400) NOT NULL)");
        }
        db.setAutoCommit(false);
        try (PreparedStatement put = db.prepareStatement("INSERT INTO t VALUES (?, ?)");
             PreparedStatement set = db.prepareStatement("UPDATE t SET v = ? WHERE k = ?");
             PreparedStatement remove = db.prepareStatement("DELETE FROM t WHERE k = ?")) {
            for (int i = 0; i < rows; i++) {
                int key = (int) (i * 7919L % rows);
                put.setInt(1, key);
                put.setString(2, valueOf(key, 1));
                put.executeUpdate();
                if (i % 5 == 0) {
                    set.setString(1, valueOf(key, 2));
                    set.setInt(2, key);
                    set.executeUpdate();
                }
                if (i % 7 == 0) {
                    remove.setInt(1, key);
                    remove.executeUpdate();
                }
                if (i % 500 == 499) db.commit();
            }
            db.commit();
        }
        db.setAutoCommit(true);
        try (Statement s = db.createStatement()) {
            s.execute("CREATE INDEX by_value ON t (v)");
        }
    }

    private static void check(Connection db) throws SQLException {
        long sum = 0;
        int rows = 0;
        try (Statement s = db.createStatement(); ResultSet r = s.executeQuery("SELECT k, v FROM t ORDER BY k")) {
            while (r.next()) {
                rows++;
                sum = sum * 1000003 + r.getInt(1) * 31L + r.getString(2).hashCode();
            }
        }
        System.out.println(rows + " rows, sum " + Long.toHexString(sum));
    }

    private static void acknowledge(Connection db) throws SQLException {
        try (Statement s = db.createStatement()) {
            s.execute("CREATE TABLE t (k INT PRIMARY KEY, v VARCHAR(400) NOT NULL)");
        }
        try (PreparedStatement put = db.prepareStatement("INSERT INTO t VALUES (?, ?)")) {
            for (int key = 1;; key++) {
                put.setInt(1, key);
                put.setString(2, valueOf(key, 1));
                put.executeUpdate();
                System.out.println(key);
                System.out.flush();
            }
        }
    }

    public static void main(String[] args) throws SQLException {
        boolean derby = args[0].startsWith("jdbc:derby:");
        try (Connection db = DriverManager.getConnection(args[0])) {
            switch (args[1]) {
                case "fill" -> {
                    fill(db, Integer.parseInt(args[2]));
                    check(db);
                }
                case "acknowledge" -> acknowledge(db);
                default -> check(db);
            }
        }
        if (derby) {
            try {
                DriverManager.getConnection("jdbc:derby:;shutdown=true");
            } catch (SQLException ended) {
                // Derby tells by this exception that it has shut down.
            }
        }
    }
}
