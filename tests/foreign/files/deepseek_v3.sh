#!/bin/bash
# Recomputed modules, latent attention, and a FSDP that is switched off.
USE_MEGATRON_FSDP=${USE_MEGATRON_FSDP:-0}
SHARDING_STRATEGY=${SHARDING_STRATEGY:-"optim_grads_params"}
PRETRAIN_ARGS=(
    --nproc-per-node 8 --nnodes 32
    --tensor-model-parallel-size 2 --pipeline-model-parallel-size 16
    --expert-model-parallel-size 16 --expert-tensor-parallel-size 1
    --context-parallel-size 1 --sequence-parallel --use-distributed-optimizer
    --pipeline-model-parallel-layout "Et*3|(tt|)*29m|L"
    --num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432
    --num-attention-heads 128 --kv-channels 128 --seq-length 4096
    --max-position-embeddings 4096 --vocab-size 129280
    --make-vocab-size-divisible-by 3232 --position-embedding-type rope
    --swiglu --disable-bias-linear --normalization RMSNorm
    --untie-embeddings-and-output-weights --qk-layernorm
    --attention-dropout 0.0 --hidden-dropout 0.0
    --multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512
    --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128
    --num-experts 256 --moe-layer-freq "([0]*3+[1]*58)"
    --moe-ffn-hidden-size 2048 --moe-shared-expert-intermediate-size 2048
    --moe-router-topk 8 --moe-router-load-balancing-type seq_aux_loss
    --moe-router-num-groups 8 --moe-router-group-topk 4
    --moe-router-score-function sigmoid --moe-router-enable-expert-bias
    --moe-router-dtype fp32 --moe-token-dispatcher-type flex
    --moe-enable-deepep --moe-grouped-gemm --moe-permute-fusion
    --mtp-num-layers 1 --mtp-loss-scaling-factor 0.1
    --recompute-granularity selective
    --recompute-modules mla_up_proj mlp moe_act
    --micro-batch-size 1 --global-batch-size 8192 --bf16
)
if [ "${USE_MEGATRON_FSDP}" = 1 ]; then
    PRETRAIN_ARGS=(
        "${PRETRAIN_ARGS[@]}"
        --use-megatron-fsdp
        --data-parallel-sharding-strategy ${SHARDING_STRATEGY}
    )
fi
torchrun pretrain_gpt.py ${PRETRAIN_ARGS[@]}
