#include <algorithm>
#include <utility>
#include <vector>

extern "C" void sparse_dot_topn(int n_row, int n_col,
                                const int *Ap, const int *Aj, const float *Ax,
                                const int *Bp, const int *Bj, const float *Bx,
                                int ntop, float lower_bound,
                                int *best, float *score)
{
    std::vector<int> next(n_col, -1);
    std::vector<float> sums(n_col, 0.f);
    std::vector<std::pair<int, float>> candidates;
    for (int i = 0; i < n_row; i++) {
        int head = -2;
        int length = 0;
        for (int jj = Ap[i]; jj < Ap[i + 1]; jj++) {
            const int j = Aj[jj];
            const float v = Ax[jj];
            for (int kk = Bp[j]; kk < Bp[j + 1]; kk++) {
                const int k = Bj[kk];
                sums[k] += v * Bx[kk];
                if (next[k] == -1) {
                    next[k] = head;
                    head = k;
                    length++;
                }
            }
        }
        candidates.clear();
        for (int n = 0; n < length; n++) {
            if (sums[head] > lower_bound)
                candidates.emplace_back(head, sums[head]);
            const int previous = head;
            head = next[head];
            next[previous] = -1;
            sums[previous] = 0.f;
        }
        std::sort(candidates.begin(), candidates.end(),
                  [](const std::pair<int, float> &a, const std::pair<int, float> &b) { return a.second > b.second; });
        for (int n = 0; n < ntop; n++) {
            const bool have = n < (int)candidates.size();
            best[i * ntop + n] = have ? candidates[n].first : -1;
            score[i * ntop + n] = have ? candidates[n].second : 0.f;
        }
    }
}
