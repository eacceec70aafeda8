package headwater;

import java.io.Serializable;

/** Rows [from, to) of some columns of one run, without those that are hidden. */
public final class RunSlice implements Serializable {
    /** The file, where in it the run's Arrow bytes begin, and how many there are. */
    public String path;
    public long arrow;
    public long arrowLength;
    /** The sums of the run's whole pieces: how long a piece is, and where in the file the sums begin. */
    public int pieceLength;
    public long sums;
    /** Of each column where in the Arrow bytes its buffers begin; -1: it has no such buffer. */
    public long[] validity;
    public long[] values;
    public long[] chars;
    public int from;
    public int to;
    /** Rows of the slice that are not there any more, rising. */
    public int[] hidden;

    /** The same rows of these columns. */
    public RunSlice select(int[] columns) {
        RunSlice made = new RunSlice();
        made.path = path;
        made.arrow = arrow;
        made.arrowLength = arrowLength;
        made.pieceLength = pieceLength;
        made.sums = sums;
        made.from = from;
        made.to = to;
        made.hidden = hidden;
        made.validity = new long[columns.length];
        made.values = new long[columns.length];
        made.chars = new long[columns.length];
        for (int n = 0; n < columns.length; n++) {
            made.validity[n] = validity[columns[n]];
            made.values[n] = values[columns[n]];
            made.chars[n] = chars[columns[n]];
        }
        return made;
    }
}
